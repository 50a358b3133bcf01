package sandbox

import (
	"fmt"
	"slices"
	"unsafe"

	"github.com/elastic/go-seccomp-bpf"
	"github.com/elastic/go-seccomp-bpf/arch"
	"golang.org/x/sys/unix"
)

// refuse puts the system call filter on the calling thread; a process forked from it inherits the filter. It lists what
// is refused: what widens the kernel's attack surface or reaches other processes, and has no use in a judged program.
func refuse(userns bool) error {
	if err := unix.Prctl(unix.PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0); err != nil {
		return fmt.Errorf("no_new_privs: %w", err)
	}
	info, err := arch.GetInfo("")
	if err != nil {
		return fmt.Errorf("seccomp: %w", err)
	}
	if err := guard(uint32(info.ID)); err != nil {
		return fmt.Errorf("seccomp guard: %w", err)
	}
	names, partly := refused(), refusedPartly()
	if userns {
		// Its pages count for nobody once they are unmapped.
		names = append(names, "memfd_create")
		partly = append(partly, refusedOnOthers()...)
	}
	// Not every architecture has every call.
	names = slices.DeleteFunc(names, func(n string) bool { _, ok := info.SyscallNames[n]; return !ok })
	err = seccomp.LoadFilter(seccomp.Filter{Policy: seccomp.Policy{
		DefaultAction: seccomp.ActionAllow,
		Syscalls: []seccomp.SyscallGroup{
			{
				Action:             seccomp.ActionErrno,
				Names:              names,
				NamesWithCondtions: partly,
			},
			// Its flags lie in memory, where a filter cannot look. Without it the C library falls back to clone.
			{Action: seccomp.ActionErrno | seccomp.Action(unix.ENOSYS), Names: []string{"clone3"}},
		},
	}})
	if err != nil {
		return fmt.Errorf("seccomp: %w", err)
	}
	return nil
}

const namespaceFlags = unix.CLONE_NEWNS | unix.CLONE_NEWCGROUP | unix.CLONE_NEWUTS | unix.CLONE_NEWIPC |
	unix.CLONE_NEWUSER | unix.CLONE_NEWPID | unix.CLONE_NEWNET

func refused() []string {
	return []string{
		"mount", "umount2", "pivot_root", "chroot", "open_tree", "move_mount", "fsopen", "fsconfig", "fsmount", "fspick",
		"mount_setattr", "unshare", "setns",
		"ptrace", "process_vm_readv", "process_vm_writev", "process_madvise", "kcmp", "pidfd_getfd",
		"bpf", "perf_event_open", "userfaultfd", "io_uring_setup", "io_uring_enter", "io_uring_register",
		"keyctl", "add_key", "request_key",
		"kexec_load", "kexec_file_load", "init_module", "finit_module", "delete_module", "reboot", "swapon", "swapoff",
		"acct", "syslog", "quotactl", "quotactl_fd", "fanotify_init", "lookup_dcookie", "nfsservctl", "vhangup",
		"open_by_handle_at", "name_to_handle_at", "personality", "iopl", "ioperm", "modify_ldt",
		"settimeofday", "clock_settime", "clock_adjtime", "adjtimex", "sethostname", "setdomainname",
		"mbind", "migrate_pages", "move_pages", "memfd_secret",
		"shmget", "semget", "msgget", "mq_open",
	}
}

// refusedPartly is what is refused for some arguments.
func refusedPartly() []seccomp.NameWithConditions {
	return []seccomp.NameWithConditions{
		when("socket", 0, seccomp.NotEqual, unix.AF_UNIX),
		when("clone", 0, seccomp.BitsSet, namespaceFlags),
	}
}

// refusedOnOthers keeps a payload in a user namespace from starving or blinding the init process, which has the same
// user there: limits, priority and scheduling may be changed for the caller only.
func refusedOnOthers() []seccomp.NameWithConditions {
	return []seccomp.NameWithConditions{
		when("prlimit64", 0, seccomp.NotEqual, 0),
		when("sched_setscheduler", 0, seccomp.NotEqual, 0),
		when("sched_setparam", 0, seccomp.NotEqual, 0),
		when("sched_setattr", 0, seccomp.NotEqual, 0),
		when("sched_setaffinity", 0, seccomp.NotEqual, 0),
		when("setpriority", 0, seccomp.NotEqual, unix.PRIO_PROCESS),
		when("setpriority", 1, seccomp.NotEqual, 0),
		when("ioprio_set", 0, seccomp.NotEqual, 1), // IOPRIO_WHO_PROCESS
		when("ioprio_set", 1, seccomp.NotEqual, 0),
	}
}

func when(call string, argument uint32, op seccomp.Operation, value uint64) seccomp.NameWithConditions {
	return seccomp.NameWithConditions{Name: call, Conditions: seccomp.ArgumentConditions{{Argument: argument, Operation: op, Value: value}}}
}

// guard is a second filter for two things the policy cannot say. Calls of another architecture (32-bit ones, say) would
// pass it unseen, so they kill. And an ioctl request has to be compared by its lower half, which is all the kernel
// looks at: TIOCSTI and TIOCLINUX type into a terminal.
func guard(auditArch uint32) error {
	const (
		load  = unix.BPF_LD | unix.BPF_W | unix.BPF_ABS
		equal = unix.BPF_JMP | unix.BPF_JEQ | unix.BPF_K
		ret   = unix.BPF_RET | unix.BPF_K
	)
	const argument1 = 16 + 8 // little-endian, as are all the architectures Go's seccomp package knows and we build for
	prog := []unix.SockFilter{
		{Code: load, K: 4}, // architecture
		{Code: equal, K: auditArch, Jt: 1},
		{Code: ret, K: unix.SECCOMP_RET_KILL_PROCESS},
		{Code: load, K: 0}, // call number
		{Code: equal, K: unix.SYS_IOCTL, Jf: 4},
		{Code: load, K: argument1},
		{Code: equal, K: unix.TIOCSTI, Jt: 1},
		{Code: equal, K: unix.TIOCLINUX, Jf: 1},
		{Code: ret, K: unix.SECCOMP_RET_ERRNO | uint32(unix.EPERM)},
		{Code: ret, K: unix.SECCOMP_RET_ALLOW},
	}
	fprog := unix.SockFprog{Len: uint16(len(prog)), Filter: &prog[0]}
	_, _, errno := unix.RawSyscall(unix.SYS_SECCOMP, unix.SECCOMP_SET_MODE_FILTER, 0, uintptr(unsafe.Pointer(&fprog)))
	if errno != 0 {
		return errno
	}
	return nil
}
