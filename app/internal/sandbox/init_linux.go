package sandbox

import (
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"os"
	"runtime"
	"sync"
	"syscall"
	"time"
	"unsafe"

	"golang.org/x/sys/unix"
)

// runInit is the first process of a box: it builds the payload's world, forks it, reaps, reports and ends. When it ends,
// or is killed, the kernel kills whatever else lives in the PID namespace.
//
// There is no further stage between it and the payload. What must be in force when the payload starts is either handed
// to fork+exec or set on the one thread that forks, from which the payload inherits it: cgroups, capabilities, the
// system call filter.
func runInit() {
	runtime.LockOSThread()
	offMainThread(func() {
		initStatus(initBox())
		// Nothing is left to flush, and every step of an orderly exit would delay the result.
		syscall.RawSyscall(syscall.SYS_EXIT_GROUP, 0, 0, 0)
	})
	select {}
}

// offMainThread runs f on a thread that is not the process's first. The kernel charges a v1 cgroup for the whole
// process if its first thread is in the group.
func offMainThread(f func()) {
	go func() {
		runtime.LockOSThread()
		if unix.Gettid() == unix.Getpid() {
			offMainThread(f) // this goroutine keeps the first thread busy
			select {}
		}
		f()
	}()
}

// initStatus reports a failed set-up.
func initStatus(err error) {
	if err == nil {
		return
	}
	r := record{Kind: recFailed}
	var b [recordSize]byte
	r.encode(&b)
	_, _ = unix.Write(statusFD, append(b[:], err.Error()...))
}

func initBox() error {
	// Under the payload's user, nobody but the kernel may look into this process.
	if err := unix.Prctl(unix.PR_SET_DUMPABLE, 0, 0, 0, 0); err != nil {
		return err
	}
	f := os.NewFile(specFD, "spec")
	var s spec
	if err := json.NewDecoder(f).Decode(&s); err != nil {
		return fmt.Errorf("read spec: %w", err)
	}
	f.Close()
	// The sandbox's own files, and whatever its process was started with, are not for the payload.
	if err := unix.CloseRange(specFD, math.MaxInt32, unix.CLOSE_RANGE_CLOEXEC); err != nil {
		return fmt.Errorf("close files: %w", err)
	}
	if err := unix.Sethostname([]byte("box")); err != nil {
		return fmt.Errorf("host name: %w", err)
	}
	if err := buildRoot(&s); err != nil {
		return err
	}
	m, err := openMeter(s.Userns)
	if err != nil {
		return err
	}
	if err := restrict(&s); err != nil {
		return err
	}
	pid, begun, err := startPayload(&s)
	if errno := syscall.Errno(0); errors.As(err, &errno) && ownProgram(s.Args[0]) && errno != syscall.EAGAIN {
		send(&record{Kind: recNoExec, Status: uint32(errno)})
		return nil
	}
	if err != nil {
		return fmt.Errorf("start %s: %w", s.Args[0], err)
	}
	send(&record{Kind: recStarted})
	if err := writeZero(groupFD+s.Join, s.Leave); err != nil {
		return fmt.Errorf("leave cgroup: %w", err)
	}
	// The payload writes to these until it is gone; this process must not keep them open for it.
	for fd := range 3 {
		_ = unix.Close(fd)
	}
	var status syscall.WaitStatus
	if s.Userns {
		status = m.await(pid)
	} else {
		status = await(pid)
	}
	wall := time.Since(begun)
	m.sample()
	send(&record{Kind: recExit, Status: uint32(status), Wall: wall, CPU: m.cpu, Memory: m.memory})
	return nil
}

// send writes a record with a raw system call: see meter for why.
func send(r *record) {
	var b [recordSize]byte
	r.encode(&b)
	syscall.RawSyscall(syscall.SYS_WRITE, statusFD, uintptr(unsafe.Pointer(&b)), recordSize)
}

// writeZero moves the calling thread (or process, as the file has it) into the cgroups behind count files.
func writeZero(first, count int) error {
	for fd := first; fd < first+count; fd++ {
		if _, err := unix.Write(fd, []byte("0")); err != nil {
			return err
		}
	}
	return nil
}

// restrict prepares this thread, and this process's rlimits, to be inherited by the payload.
func restrict(s *spec) error {
	if err := writeZero(groupFD, s.Join); err != nil {
		return fmt.Errorf("join cgroup: %w", err)
	}
	if err := dropPrivileges(); err != nil {
		return err
	}
	if err := setRlimits(s); err != nil {
		return err
	}
	if err := refuse(s.Userns); err != nil {
		return err
	}
	return resetSignals()
}

// dropPrivileges takes away what an exec could hand on: the bounding, ambient and inheritable sets. The thread keeps its
// effective capabilities, which an exec as a user other than root clears.
func dropPrivileges() error {
	for c := uintptr(0); ; c++ {
		err := unix.Prctl(unix.PR_CAPBSET_DROP, c, 0, 0, 0)
		if errors.Is(err, unix.EINVAL) && c > 0 {
			break // past the kernel's last capability
		}
		if err != nil {
			return fmt.Errorf("drop capability %d: %w", c, err)
		}
	}
	if err := unix.Prctl(unix.PR_CAP_AMBIENT, unix.PR_CAP_AMBIENT_CLEAR_ALL, 0, 0, 0); err != nil {
		return fmt.Errorf("ambient capabilities: %w", err)
	}
	hdr := unix.CapUserHeader{Version: unix.LINUX_CAPABILITY_VERSION_3}
	var data [2]unix.CapUserData
	if err := unix.Capget(&hdr, &data[0]); err != nil {
		return fmt.Errorf("read capabilities: %w", err)
	}
	data[0].Inheritable, data[1].Inheritable = 0, 0
	if err := unix.Capset(&hdr, &data[0]); err != nil {
		return fmt.Errorf("inheritable capabilities: %w", err)
	}
	return nil
}

// setRlimits sets limits on this process; all but the process count and address space are too wide to matter to it.
func setRlimits(s *spec) error {
	l := s.Limits
	limits := map[int]uint64{
		unix.RLIMIT_CORE:   0,
		unix.RLIMIT_FSIZE:  uint64(l.FileSize),
		unix.RLIMIT_NOFILE: 512,
		unix.RLIMIT_STACK:  uint64(l.Memory), // deep recursion is bounded by memory alone
		// Only a net below the exact limit: it counts whole seconds, and each process by itself.
		unix.RLIMIT_CPU: uint64(math.Ceil(l.CPU.Seconds())) + 1,
	}
	if s.Userns {
		// The runtimes of Go, Java and Node reserve far more addresses than they use.
		limits[unix.RLIMIT_AS] = uint64(4*l.Memory) + 16<<30
		// This process's own threads have the same user and count, too. It starts no more of them: see meter.
		spareThreads(3)
		threads, err := os.ReadDir("/proc/self/task")
		if err != nil {
			return err
		}
		limits[unix.RLIMIT_NPROC] = uint64(l.Processes + len(threads))
	}
	for what, v := range limits {
		var now unix.Rlimit
		if err := unix.Getrlimit(what, &now); err != nil {
			return err
		}
		v = min(v, now.Max)
		if err := unix.Setrlimit(what, &unix.Rlimit{Cur: v, Max: v}); err != nil {
			return fmt.Errorf("rlimit %d: %w", what, err)
		}
	}
	return nil
}

// spareThreads makes the Go runtime start threads and leaves them idle, for the calls around the fork during which it may
// want one. Once the payload has used up the process limit, a new one could not be had and the runtime would give up.
func spareThreads(n int) {
	var locked, done sync.WaitGroup
	free := make(chan struct{})
	for range n {
		locked.Add(1)
		done.Go(func() {
			runtime.LockOSThread() // as long as it waits, nobody else gets its thread
			defer runtime.UnlockOSThread()
			locked.Done()
			<-free
		})
	}
	locked.Wait()
	close(free)
	done.Wait()
}

// resetSignals puts every signal back to its default. The payload then starts with clean defaults; and the kernel drops
// signals with the default action that a process sends to the first one of its namespace, so the payload cannot end it.
func resetSignals() error {
	var action [64]byte // all zero: default action, no flags, empty mask
	for sig := uintptr(1); sig <= 64; sig++ {
		if sig == uintptr(unix.SIGKILL) || sig == uintptr(unix.SIGSTOP) {
			continue
		}
		_, _, errno := syscall.RawSyscall6(syscall.SYS_RT_SIGACTION, sig, uintptr(unsafe.Pointer(&action)), 0, 8, 0, 0)
		if errno != 0 {
			return fmt.Errorf("signal %d: %w", sig, errno)
		}
	}
	return nil
}

// startPayload forks and executes the payload from this thread.
func startPayload(s *spec) (pid int, begun time.Time, err error) {
	sys := &syscall.SysProcAttr{Setsid: true}
	if !s.Userns {
		sys.Credential = &syscall.Credential{Uid: uint32(s.User), Gid: uint32(s.User)}
	}
	begun = time.Now()
	pid, err = syscall.ForkExec(s.Args[0], s.Args, &syscall.ProcAttr{
		Dir:   WorkDir,
		Env:   s.Env,
		Files: []uintptr{0, 1, 2},
		Sys:   sys,
	})
	return pid, begun, err
}

// await reaps all children until the payload itself ends.
func await(pid int) syscall.WaitStatus {
	for {
		var status syscall.WaitStatus
		got, err := syscall.Wait4(-1, &status, syscall.WALL, nil)
		if got == pid && err == nil {
			return status
		}
	}
}
