package main

import (
	"syscall"
	"unsafe"
)

func schedSet(policy int, param *int32) int {
	_, _, e := syscall.RawSyscall(syscall.SYS_SCHED_SETSCHEDULER, 0, uintptr(policy), uintptr(unsafe.Pointer(param)))
	return int(e)
}

func ioprio(value int) int {
	_, _, e := syscall.RawSyscall(syscall.SYS_IOPRIO_SET, 1, 0, uintptr(value))
	return int(e)
}
