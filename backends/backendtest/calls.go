package backendtest

import (
	"encoding/json"
	"runtime"
	"syscall"
)

// numbers of system calls the suite tries, on amd64 and arm64; -1 where there
// is none.
var numbers = map[string][2]int{
	"acct": {163, 89}, "add_key": {248, 217}, "adjtimex": {159, 171}, "bpf": {321, 280}, "chroot": {161, 51}, "clock_adjtime": {305, 266},
	"clock_settime": {227, 112}, "clone": {56, 220}, "clone3": {435, 435}, "create_module": {174, -1}, "delete_module": {176, 106},
	"fanotify_init": {300, 262}, "finit_module": {313, 273}, "fsconfig": {431, 431}, "fsmount": {432, 432}, "fsopen": {430, 430},
	"fspick": {433, 433}, "getpid": {39, 172}, "init_module": {175, 105}, "io_uring_enter": {426, 426}, "io_uring_register": {427, 427},
	"io_uring_setup": {425, 425}, "ioctl": {16, 29}, "ioperm": {173, -1}, "iopl": {172, -1}, "kcmp": {312, 272}, "kexec_file_load": {320, 294},
	"kexec_load": {246, 104}, "keyctl": {250, 219}, "lookup_dcookie": {212, 18}, "mbind": {237, 235}, "memfd_secret": {447, 447},
	"migrate_pages": {256, 238}, "modify_ldt": {154, -1}, "mount": {165, 40}, "mount_setattr": {442, 442}, "move_mount": {429, 429},
	"move_pages": {279, 239}, "name_to_handle_at": {303, 264}, "nfsservctl": {180, 42}, "open_by_handle_at": {304, 265}, "open_tree": {428, 428},
	"perf_event_open": {298, 241}, "personality": {135, 92}, "pidfd_getfd": {438, 438}, "pivot_root": {155, 41}, "process_madvise": {440, 440},
	"process_vm_readv": {310, 270}, "process_vm_writev": {311, 271}, "ptrace": {101, 117}, "quotactl": {179, 60}, "quotactl_fd": {443, 443},
	"reboot": {169, 142}, "request_key": {249, 218}, "set_mempolicy": {238, 237}, "setdomainname": {171, 162}, "sethostname": {170, 161},
	"setns": {308, 268}, "settimeofday": {164, 170}, "socket": {41, 198}, "socketpair": {53, 199}, "swapoff": {168, 225}, "swapon": {167, 224},
	"syslog": {103, 116}, "umount2": {166, 39}, "unshare": {272, 97}, "userfaultfd": {323, 282}, "ustat": {136, -1}, "vhangup": {153, 58},
	"prlimit64": {302, 261}, "sched_setscheduler": {144, 119}, "sched_setparam": {142, 118}, "sched_setattr": {314, 274}, "setpriority": {141, 140},
	"ioprio_set": {251, 30}, "vmsplice": {278, 75}, "statmount": {457, 457}, "listmount": {458, 458}, "lsm_set_self_attr": {460, 460},
}

// sysCall is a raw call for the probe.
type sysCall struct {
	Nr   uint64   `json:"nr"`
	Args []uint64 `json:"args"`
}

func number(name string) int {
	n := numbers[name][0]
	if runtime.GOARCH == "arm64" {
		n = numbers[name][1]
	}
	return n
}

func named(name string, args ...uint64) sysCall {
	return sysCall{Nr: uint64(number(name)), Args: args} //nolint:gosec // never called with an absent one
}

// calls makes raw calls inside a sandbox and returns their errno by name.
func (t *T) calls(b *box, names []string, calls []sysCall) map[string]int {
	t.Helper()
	text, err := json.Marshal(calls)
	if err != nil {
		t.Fatal(err)
	}
	got := try[[]int](t, b, "syscalls", string(text))
	out := map[string]int{}
	for i, n := range got {
		out[names[i]] = n
	}
	if len(out) != len(calls) {
		t.Fatalf("%d answers to %d calls", len(out), len(calls))
	}
	return out
}

// expectCalls makes calls with harmless arguments and expects one answer.
func (t *T) expectCalls(b *box, want syscall.Errno, names ...string) {
	t.Helper()
	var have []string
	var calls []sysCall
	for _, n := range names {
		if number(n) >= 0 {
			have = append(have, n)
			calls = append(calls, named(n))
		}
	}
	t.expect(t.calls(b, have, calls), want)
}
