package main

// int80 makes a system call by the 32-bit convention.
func int80() int
