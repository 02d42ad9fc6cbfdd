// Package seccomp assembles the system-call filter of a sandbox: an allow-list
// in one Go table, compiled to classic BPF. It is not a general seccomp
// library and does not load filters; a backend hands the bytes to its runtime.
//
// Three properties matter, and the tests prove them in a BPF machine over
// every number below 1024: a special call returns on every path, so no later
// rule ever compares an argument with a call number; arguments are compared by
// their low 32 bits, as the kernel reads them; and a foreign calling
// convention never reaches the list.
package seccomp

import (
	"encoding/binary"
	"fmt"
	"runtime"
	"slices"

	"golang.org/x/net/bpf"
)

// Actions a filter returns.
const (
	Allow       uint32 = 0x7fff0000
	ErrnoEPERM  uint32 = 0x00050000 | 1
	ErrnoENOSYS uint32 = 0x00050000 | 38
	KillProcess uint32 = 0x80000000
)

// Audit architecture numbers.
const (
	auditAMD64 uint32 = 0xC000003E
	auditARM64 uint32 = 0xC00000B7
)

// x32Bit is set in the number of every call of the x32 convention.
const x32Bit uint32 = 0x40000000

// Argument values that decide.
const (
	tiocsti    uint32 = 0x5412
	tioclinux  uint32 = 0x541C
	tiocsetd   uint32 = 0x5423
	newMask    uint32 = 0x7E020000 // CLONE_NEW{NS,CGROUP,UTS,IPC,USER,PID,NET}
	familyUnix uint32 = 1
	familyIP4  uint32 = 2
	familyIP6  uint32 = 10
	protoTCP   uint32 = 6
	protoUDP   uint32 = 17
	queryPers  uint32 = 0xffffffff
)

// arch is one architecture a filter can be built for.
type arch struct {
	name  string
	audit uint32
	nr    func(call) int
	x32   bool
}

var arches = map[string]arch{
	"amd64": {"amd64", auditAMD64, func(c call) int { return c.amd64 }, true},
	"arm64": {"arm64", auditARM64, func(c call) int { return c.arm64 }, false},
}

// special is a call whose arguments decide. body must return on every path.
type special struct {
	call call
	body []bpf.Instruction
}

func ret(action uint32) bpf.Instruction { return bpf.RetConstant{Val: action} }

// loadLow loads the low half of argument i.
func loadLow(i int) bpf.Instruction {
	return bpf.LoadAbsolute{Off: uint32(16 + 8*i), Size: 4} //nolint:gosec // i is a constant below 6
}

// loadHigh loads the high half of argument i.
func loadHigh(i int) bpf.Instruction {
	return bpf.LoadAbsolute{Off: uint32(20 + 8*i), Size: 4} //nolint:gosec // as above
}

// oneOf returns then if the argument's low half is one of vals, else otherwise.
func oneOf(arg int, vals []uint32, then, otherwise uint32) []bpf.Instruction {
	b := []bpf.Instruction{loadLow(arg)}
	for i, v := range vals {
		left := uint8(len(vals) - i) //nolint:gosec // a handful
		b = append(b, bpf.JumpIf{Cond: bpf.JumpEqual, Val: v, SkipTrue: left})
	}
	return append(b, ret(otherwise), ret(then))
}

// sockets allows local ones, and those of the Internet that speak TCP or UDP:
// whatever else the kernel knows would be loaded on request, and attacked.
func sockets() []bpf.Instruction {
	return []bpf.Instruction{
		loadLow(0),
		bpf.JumpIf{Cond: bpf.JumpEqual, Val: familyUnix, SkipTrue: 7},
		bpf.JumpIf{Cond: bpf.JumpEqual, Val: familyIP4, SkipTrue: 1},
		bpf.JumpIf{Cond: bpf.JumpEqual, Val: familyIP6, SkipFalse: 4},
		loadLow(2),
		bpf.JumpIf{Cond: bpf.JumpEqual, Val: 0, SkipTrue: 3},
		bpf.JumpIf{Cond: bpf.JumpEqual, Val: protoTCP, SkipTrue: 2},
		bpf.JumpIf{Cond: bpf.JumpEqual, Val: protoUDP, SkipTrue: 1},
		ret(ErrnoEPERM), ret(Allow),
	}
}

// ownLimits lets everybody read limits and set their own. The guest has the
// same user as the code and would lose its descriptors to it.
func ownLimits() []bpf.Instruction {
	return []bpf.Instruction{
		loadLow(0),
		bpf.JumpIf{Cond: bpf.JumpEqual, Val: 0, SkipTrue: 5},
		loadLow(2), // a pointer to the new limit, or none
		bpf.JumpIf{Cond: bpf.JumpNotEqual, Val: 0, SkipTrue: 2},
		loadHigh(2),
		bpf.JumpIf{Cond: bpf.JumpEqual, Val: 0, SkipTrue: 1},
		ret(ErrnoEPERM), ret(Allow),
	}
}

// ownPriority allows a call for the caller alone or its process group, named by
// the first argument, and not for others or for all processes of the user.
func ownPriority(process, group uint32) []bpf.Instruction {
	return []bpf.Instruction{
		loadLow(0),
		bpf.JumpIf{Cond: bpf.JumpEqual, Val: process, SkipTrue: 1},
		bpf.JumpIf{Cond: bpf.JumpEqual, Val: group, SkipFalse: 2},
		loadLow(1),
		bpf.JumpIf{Cond: bpf.JumpEqual, Val: 0, SkipTrue: 1},
		ret(ErrnoEPERM), ret(Allow),
	}
}

func specials() []special {
	own := oneOf(0, []uint32{0}, Allow, ErrnoEPERM)
	return []special{
		{callIoctl, oneOf(1, []uint32{tiocsti, tioclinux, tiocsetd}, ErrnoEPERM, Allow)},
		{callSocket, sockets()},
		{callSocketpair, sockets()},
		{callPrlimit64, ownLimits()},
		{callSchedSetscheduler, own},
		{callSchedSetparam, own},
		{callSchedSetattr, own},
		{callSetpriority, ownPriority(0, 1)}, // PRIO_PROCESS, PRIO_PGRP
		{callIoprioSet, ownPriority(1, 2)},   // IOPRIO_WHO_PROCESS, IOPRIO_WHO_PGRP
		{callPersonality, oneOf(0, []uint32{0, queryPers}, Allow, ErrnoEPERM)},
		{callClone, []bpf.Instruction{
			loadLow(0),
			bpf.JumpIf{Cond: bpf.JumpBitsSet, Val: newMask, SkipFalse: 1},
			ret(ErrnoEPERM), ret(Allow),
		}},
		// The C library falls back to clone, whose flags a filter can read.
		{callClone3, []bpf.Instruction{ret(ErrnoENOSYS)}},
	}
}

// program is the filter for a, as instructions.
func program(a arch) []bpf.Instruction {
	p := []bpf.Instruction{
		bpf.LoadAbsolute{Off: 4, Size: 4},
		bpf.JumpIf{Cond: bpf.JumpEqual, Val: a.audit, SkipTrue: 1},
		ret(KillProcess),
		bpf.LoadAbsolute{Off: 0, Size: 4},
	}
	if a.x32 {
		p = append(p, bpf.JumpIf{Cond: bpf.JumpGreaterOrEqual, Val: x32Bit, SkipFalse: 1}, ret(ErrnoENOSYS))
	}
	for _, s := range specials() {
		skip := uint8(len(s.body))                                                                   //nolint:gosec // a handful
		p = append(p, bpf.JumpIf{Cond: bpf.JumpNotEqual, Val: uint32(a.nr(s.call)), SkipTrue: skip}) //nolint:gosec // table
		p = append(p, s.body...)
	}
	for _, r := range runs(a) {
		if r.first == r.last {
			p = append(p, bpf.JumpIf{Cond: bpf.JumpEqual, Val: r.first, SkipFalse: 1}, ret(Allow))
			continue
		}
		p = append(p,
			bpf.JumpIf{Cond: bpf.JumpLessThan, Val: r.first, SkipTrue: 2},
			bpf.JumpIf{Cond: bpf.JumpGreaterThan, Val: r.last, SkipTrue: 1},
			ret(Allow))
	}
	return append(p, ret(ErrnoEPERM))
}

// span is a run of consecutive allowed numbers.
type span struct{ first, last uint32 }

func runs(a arch) []span {
	var nrs []uint32
	for _, c := range allowed {
		if n := a.nr(c); n != none {
			nrs = append(nrs, uint32(n)) //nolint:gosec // table
		}
	}
	slices.Sort(nrs)
	var out []span
	for _, n := range nrs {
		if k := len(out); k > 0 && out[k-1].last+1 == n {
			out[k-1].last = n
			continue
		}
		out = append(out, span{n, n})
	}
	return out
}

// Filter is the compiled filter for the architecture this program runs on, as
// an array of struct sock_filter in native byte order.
func Filter() ([]byte, error) { return FilterFor(runtime.GOARCH) }

// FilterFor is Filter for a named architecture, "amd64" or "arm64".
func FilterFor(goarch string) ([]byte, error) {
	a, ok := arches[goarch]
	if !ok {
		return nil, fmt.Errorf("there is no system-call filter for %s", goarch)
	}
	raw, err := bpf.Assemble(program(a))
	if err != nil {
		return nil, fmt.Errorf("assemble filter: %w", err)
	}
	out := make([]byte, 0, 8*len(raw))
	for _, r := range raw {
		out = binary.NativeEndian.AppendUint16(out, r.Op)
		out = append(out, r.Jt, r.Jf)
		out = binary.NativeEndian.AppendUint32(out, r.K)
	}
	return out, nil
}

// Names lists the calls the filter allows, some only with certain arguments.
func Names() []string {
	var out []string
	for _, c := range allowed {
		out = append(out, c.name)
	}
	for _, s := range specials() {
		if s.call != callClone3 {
			out = append(out, s.call.name)
		}
	}
	slices.Sort(out)
	return out
}
