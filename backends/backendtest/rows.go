package backendtest

import (
	"slices"
)

// rows is the table, in the order of the matrix.
func rows() []row {
	return slices.Concat(lifeRows(), fileRows(), processRows(), limitRows(), networkRows(), syscallRows(), procRows(), identityRows(), neighbourRows())
}
