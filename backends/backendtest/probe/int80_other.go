//go:build !amd64

package main

// int80 has no counterpart here.
func int80() int { return -1 }
