module sandbook

go 1.26.0
