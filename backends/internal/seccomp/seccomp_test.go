package seccomp

import (
	"encoding/binary"
	"fmt"
	"slices"
	"testing"

	"golang.org/x/net/bpf"
)

// spec says in plain Go what the filter must answer.
func spec(goarch string, audit, nr uint32, args [6]uint64) uint32 {
	a := arches[goarch]
	if audit != a.audit {
		return KillProcess
	}
	if a.x32 && nr >= 0x40000000 {
		return ErrnoENOSYS
	}
	low := func(i int) uint32 { return uint32(args[i]) } //nolint:gosec // the low half is meant
	is := func(c call) bool { return a.nr(c) != none && nr == uint32(a.nr(c)) }
	when := func(ok bool) uint32 {
		if ok {
			return Allow
		}
		return ErrnoEPERM
	}
	switch {
	case is(callClone3):
		return ErrnoENOSYS
	case is(callIoctl):
		return when(low(1) != 0x5412 && low(1) != 0x541C && low(1) != 0x5423)
	case is(callSocket), is(callSocketpair):
		known := low(2) == 0 || low(2) == 6 || low(2) == 17
		return when(low(0) == 1 || (low(0) == 2 || low(0) == 10) && known)
	case is(callPrlimit64):
		return when(low(0) == 0 || args[2] == 0)
	case is(callSchedSetscheduler), is(callSchedSetparam), is(callSchedSetattr):
		return when(low(0) == 0)
	case is(callSetpriority):
		return when((low(0) == 0 || low(0) == 1) && low(1) == 0)
	case is(callIoprioSet):
		return when((low(0) == 1 || low(0) == 2) && low(1) == 0)
	case is(callPersonality):
		return when(low(0) == 0 || low(0) == 0xffffffff)
	case is(callClone):
		return when(low(0)&0x7E020000 == 0)
	}
	for _, c := range allowed {
		if is(c) {
			return Allow
		}
	}
	return ErrnoEPERM
}

// machine runs a filter as the kernel would.
func machine(tb testing.TB, goarch string) func(audit, nr uint32, args [6]uint64) uint32 {
	tb.Helper()
	vm, err := bpf.NewVM(program(arches[goarch]))
	if err != nil {
		tb.Fatal(err)
	}
	return func(audit, nr uint32, args [6]uint64) uint32 {
		// The machine loads big-endian words where the kernel loads native
		// ones, so the data is laid out for it.
		m := make([]byte, 64)
		binary.BigEndian.PutUint32(m[0:], nr)
		binary.BigEndian.PutUint32(m[4:], audit)
		for i, v := range args {
			binary.BigEndian.PutUint32(m[16+8*i:], uint32(v))     //nolint:gosec // low half
			binary.BigEndian.PutUint32(m[20+8*i:], uint32(v>>32)) //nolint:gosec // high half
		}
		r, err := vm.Run(m)
		if err != nil {
			tb.Fatal(err)
		}
		return uint32(r) //nolint:gosec // an action
	}
}

// classes are argument values that have ever fooled a filter.
func classes() [][6]uint64 {
	var out [][6]uint64
	vals := []uint64{
		0, 1, 2, 3, 6, 10, 16, 17, 29, 38, 40, 41, 53, 56, 0x5401, 0x5423, 0x5412, 0x541C, 0x541B, 0x5421, 0x7E020000,
		0x10000000, 0x00020000, 0x02000000, 0x01200011, 0x003d0f00, 0x80, 0xffffffff, 0xfffffffe, 8, 0x20000, 1 << 31,
	}
	for _, v := range vals {
		for _, high := range []uint64{0, 1 << 32, 0xffffffff << 32} {
			out = append(out, [6]uint64{v | high, 0, 0}, [6]uint64{0, v | high, 0}, [6]uint64{v | high, v | high, v})
		}
	}
	// Pairs that only together decide: family and protocol, process and pointer,
	// kind and number.
	for _, first := range []uint64{0, 1, 2, 10, 1 << 32, 2 | 1<<32} {
		for _, v := range []uint64{0, 1, 6, 17, 33, 58, 132, 136, 256, 262, 1 << 32, 6 | 1<<32, 262 | 1<<32, 0x7fff00001000} {
			out = append(out, [6]uint64{first, 0, v}, [6]uint64{first, v, 0}, [6]uint64{first, 1, v})
		}
	}
	for f := range uint64(64) {
		out = append(out, [6]uint64{f}, [6]uint64{f | 1<<32, 1, 0})
	}
	return out
}

// TestFilterEqualsSpec: S06. The compiled filter answers as the specification
// for every number, calling convention and argument class.
func TestFilterEqualsSpec(t *testing.T) {
	t.Parallel()
	const i386, arm, riscv = 0x40000003, 0x40000028, 0xC00000F3
	for goarch := range arches {
		t.Run(goarch, func(t *testing.T) {
			t.Parallel()
			run := machine(t, goarch)
			var checked int
			for _, audit := range []uint32{auditAMD64, auditARM64, i386, arm, riscv, 0, 0xffffffff} {
				for nr := range uint32(1024) {
					for _, n := range []uint32{nr, nr | x32Bit, nr | 1<<31} {
						for _, args := range classes() {
							checked++
							if got, want := run(audit, n, args), spec(goarch, audit, n, args); got != want {
								t.Fatalf("audit %#x nr %d args %#x: filter %#x, spec %#x", audit, n, args, got, want)
							}
						}
						if audit != arches[goarch].audit {
							break // arguments cannot matter more than once
						}
					}
				}
			}
			t.Logf("%d cases agree", checked)
		})
	}
}

// TestNeverAllowed names the calls whose absence other systems learned about
// the hard way.
func TestNeverAllowed(t *testing.T) {
	t.Parallel()
	banned := map[string][2]uint32{ // amd64, arm64
		"ptrace": {101, 117}, "process_vm_readv": {310, 270}, "process_vm_writev": {311, 271},
		"kcmp": {312, 272}, "pidfd_getfd": {438, 438}, "keyctl": {250, 219}, "add_key": {248, 217},
		"request_key": {249, 218}, "bpf": {321, 280}, "userfaultfd": {323, 282}, "io_uring_setup": {425, 425},
		"io_uring_enter": {426, 426}, "io_uring_register": {427, 427}, "perf_event_open": {298, 241},
		"mount": {165, 40}, "umount2": {166, 39}, "pivot_root": {155, 41}, "chroot": {161, 51},
		"open_tree": {428, 428}, "move_mount": {429, 429}, "fsopen": {430, 430}, "fsconfig": {431, 431},
		"fsmount": {432, 432}, "fspick": {433, 433}, "mount_setattr": {442, 442}, "unshare": {272, 97},
		"setns": {308, 268}, "open_by_handle_at": {304, 265}, "name_to_handle_at": {303, 264},
		"fanotify_init": {300, 262}, "kexec_load": {246, 104}, "init_module": {175, 105}, "reboot": {169, 142},
		"swapon": {167, 224}, "acct": {163, 89}, "quotactl": {179, 60}, "syslog": {103, 116},
		"settimeofday": {164, 170}, "clock_settime": {227, 112}, "clock_adjtime": {305, 266}, "adjtimex": {159, 171},
		"memfd_secret": {447, 447}, "vmsplice": {278, 75}, "move_pages": {279, 239}, "mbind": {237, 235},
		"migrate_pages": {256, 238}, "statmount": {457, 457}, "listmount": {458, 458}, "process_madvise": {440, 440},
	}
	for goarch := range arches {
		run := machine(t, goarch)
		for name, nrs := range banned {
			nr := nrs[0]
			if goarch == "arm64" {
				nr = nrs[1]
			}
			if got := run(arches[goarch].audit, nr, [6]uint64{}); got != ErrnoEPERM {
				t.Errorf("%s %s: %#x, want EPERM", goarch, name, got)
			}
		}
	}
}

// TestSpecialsReturn: a special's body must return on every path, or the
// argument it loaded would be compared with call numbers (the flaw of
// go-seccomp-bpf 1.6.0).
func TestSpecialsReturn(t *testing.T) {
	t.Parallel()
	for _, s := range specials() {
		last := s.body[len(s.body)-1]
		if _, ok := last.(bpf.RetConstant); !ok {
			t.Errorf("%s falls through: %v", s.call.name, last)
		}
		for i, ins := range s.body {
			if j, ok := ins.(bpf.JumpIf); ok {
				for _, skip := range []uint8{j.SkipTrue, j.SkipFalse} {
					if i+1+int(skip) >= len(s.body) {
						t.Errorf("%s jumps out of its body at %d", s.call.name, i)
					}
				}
			}
		}
	}
}

func TestTable(t *testing.T) {
	t.Parallel()
	names := Names()
	if !slices.IsSorted(names) || len(names) != len(slices.Compact(slices.Clone(names))) {
		t.Error("names are not sorted and unique")
	}
	for goarch, a := range arches {
		seen := map[int]string{}
		for _, c := range append(slices.Clone(allowed), callClone, callClone3, callIoctl, callPersonality, callSocket, callSocketpair,
			callPrlimit64, callSchedSetscheduler, callSchedSetparam, callSchedSetattr, callSetpriority, callIoprioSet) {
			n := a.nr(c)
			if n == none {
				continue
			}
			if other := seen[n]; other != "" {
				t.Errorf("%s: %s and %s are both %d", goarch, other, c.name, n)
			}
			seen[n] = c.name
		}
	}
	for _, goarch := range []string{"amd64", "arm64"} {
		raw, err := FilterFor(goarch)
		if err != nil {
			t.Fatal(err)
		}
		if n := len(raw) / 8; n == 0 || n > 4096 || len(raw)%8 != 0 {
			t.Errorf("%s: %d bytes are no filter", goarch, len(raw))
		}
	}
	if _, err := FilterFor("mips"); err == nil {
		t.Error("an architecture without a table got a filter")
	}
}

// FuzzFilter looks for a call on which filter and specification differ.
func FuzzFilter(f *testing.F) {
	f.Add(uint32(auditAMD64), uint32(41), uint64(16), uint64(0), uint64(0))
	f.Add(uint32(auditAMD64), uint32(16), uint64(0), uint64(0x100005412), uint64(0))
	f.Add(uint32(auditAMD64), uint32(0x40000000|56), uint64(0x10000000), uint64(0), uint64(0))
	f.Add(uint32(0x40000003), uint32(11), uint64(0), uint64(0), uint64(0))
	f.Add(uint32(auditAMD64), uint32(302), uint64(1), uint64(7), uint64(1<<32))
	f.Add(uint32(auditAMD64), uint32(41), uint64(2), uint64(1), uint64(262))
	runs := map[string]func(uint32, uint32, [6]uint64) uint32{}
	for goarch := range arches {
		runs[goarch] = machine(f, goarch)
	}
	f.Fuzz(func(t *testing.T, audit, nr uint32, a0, a1, a2 uint64) {
		args := [6]uint64{a0, a1, a2}
		for goarch, run := range runs {
			for _, au := range []uint32{audit, arches[goarch].audit} {
				if got, want := run(au, nr, args), spec(goarch, au, nr, args); got != want {
					t.Fatalf("%s audit %#x nr %d args %#x: filter %#x, spec %#x", goarch, au, nr, args, got, want)
				}
			}
		}
	})
}

func ExampleNames() {
	names := Names()
	fmt.Println(slices.Contains(names, "read"), slices.Contains(names, "ptrace"))
	// Output: true false
}
