package sandbox

import (
	"fmt"
	"strconv"
	"syscall"
	"time"
	"unsafe"

	"golang.org/x/sys/unix"
)

// sampleEvery is how often the box is measured where no cgroup does it.
const sampleEvery = 5 * time.Millisecond

// meter sums up CPU time and memory over the processes of a box, from its init process, whose /proc shows them all.
//
// The payload may use up the process limit, and the init process counts towards it with the same user. So the init
// process must not need another thread then, or the Go runtime would end it: everything here allocates nothing and uses
// raw system calls only, during which the scheduler does not look for a thread to take over. (GOMAXPROCS is 1 and the
// garbage collector off in the init process.)
type meter struct {
	proc     int // open folder /proc; -1 where not needed
	page     int64
	own      int64 // largest resident size of the init process before the payload started
	cpu      time.Duration
	memory   int64 // highest sum so far
	entries  [4096]byte
	stat     [1024]byte
	statPath [32]byte
}

func openMeter(userns bool) (*meter, error) {
	m := &meter{proc: -1, page: int64(unix.Getpagesize())}
	if !userns {
		return m, nil
	}
	var err error
	if m.proc, err = unix.Open("/proc", unix.O_RDONLY|unix.O_DIRECTORY|unix.O_CLOEXEC, 0); err != nil {
		return nil, fmt.Errorf("open /proc: %w", err)
	}
	var ru syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &ru); err != nil {
		return nil, err
	}
	m.own = ru.Maxrss * 1024
	return m, nil
}

// await reaps all children until the payload ends, and reports the use so far at every sample.
func (m *meter) await(pid int) syscall.WaitStatus {
	fd, _, errno := syscall.RawSyscall(unix.SYS_PIDFD_OPEN, uintptr(pid), 0, 0)
	poll := unix.PollFd{Fd: int32(fd), Events: unix.POLLIN}
	if errno != 0 {
		poll.Fd = -1 // kernel before 5.3: the end is seen at the next sample only
	}
	for {
		ts := unix.Timespec{Nsec: int64(sampleEvery)}
		syscall.RawSyscall6(unix.SYS_PPOLL, uintptr(unsafe.Pointer(&poll)), 1, uintptr(unsafe.Pointer(&ts)), 0, 0, 0)
		if status, ok := m.reap(pid); ok {
			return status
		}
		m.sample()
		send(&record{Kind: recUsage, CPU: m.cpu, Memory: m.memory})
	}
}

// reap collects the dead and says whether the payload is one of them.
func (m *meter) reap(pid int) (status syscall.WaitStatus, ok bool) {
	for {
		var st uint32
		var ru syscall.Rusage
		got, _, errno := syscall.RawSyscall6(unix.SYS_WAIT4, ^uintptr(0), uintptr(unsafe.Pointer(&st)), syscall.WNOHANG|syscall.WALL, uintptr(unsafe.Pointer(&ru)), 0, 0)
		if errno == syscall.EINTR {
			continue
		}
		if errno != 0 || got == 0 {
			return status, ok
		}
		// A forked process starts with its parent's mark; what is not above it says nothing.
		if rss := ru.Maxrss * 1024; rss > m.own {
			m.memory = max(m.memory, rss)
		}
		if int(got) == pid {
			status, ok = syscall.WaitStatus(st), true
		}
	}
}

// sample measures all processes once. Without a /proc folder it does nothing.
func (m *meter) sample() {
	if m.proc < 0 {
		return
	}
	var ru syscall.Rusage
	syscall.RawSyscall(unix.SYS_GETRUSAGE, ^uintptr(0), uintptr(unsafe.Pointer(&ru)), 0) // the reaped ones
	cpu := time.Duration(ru.Utime.Nano() + ru.Stime.Nano())
	var memory int64
	syscall.RawSyscall(unix.SYS_LSEEK, uintptr(m.proc), 0, 0)
	for {
		n, _, errno := syscall.RawSyscall(unix.SYS_GETDENTS64, uintptr(m.proc), uintptr(unsafe.Pointer(&m.entries)), uintptr(len(m.entries)))
		if errno != 0 || n == 0 {
			break
		}
		for e := m.entries[:n]; len(e) > 19; {
			size := int(e[16]) | int(e[17])<<8
			if pid := leadingInt(e[19:size]); pid > 1 {
				c, rss := m.process(pid)
				cpu += c
				memory += rss
			}
			e = e[size:]
		}
	}
	// A process that ends between two looks is missing from the sum for a moment.
	m.cpu = max(m.cpu, cpu)
	m.memory = max(m.memory, memory)
}

// process is one process's CPU time, with that of the children it waited for, and its resident bytes.
func (m *meter) process(pid int64) (cpu time.Duration, rss int64) {
	var ts unix.Timespec
	// The CPU clock of another process; its stat file only counts hundredths of a second.
	clock := uintptr(^pid<<3 | 2)
	if _, _, errno := syscall.RawSyscall(unix.SYS_CLOCK_GETTIME, clock, uintptr(unsafe.Pointer(&ts)), 0); errno == 0 {
		cpu = time.Duration(ts.Nano())
	}
	name := append(strconv.AppendInt(m.statPath[:0], pid, 10), "/stat\x00"...)
	fd, _, errno := syscall.RawSyscall6(unix.SYS_OPENAT, uintptr(m.proc), uintptr(unsafe.Pointer(&name[0])), unix.O_RDONLY|unix.O_CLOEXEC, 0, 0, 0)
	if errno != 0 {
		return cpu, 0
	}
	n, _, errno := syscall.RawSyscall(unix.SYS_READ, fd, uintptr(unsafe.Pointer(&m.stat)), uintptr(len(m.stat)))
	syscall.RawSyscall(unix.SYS_CLOSE, fd, 0, 0)
	if errno != 0 {
		return cpu, 0
	}
	const tick = time.Second / 100 // USER_HZ, fixed on all architectures Go knows
	children, pages := parseStat(m.stat[:n])
	return cpu + time.Duration(children)*tick, pages * m.page
}

// parseStat reads the fields cutime + cstime and rss of /proc/<pid>/stat.
func parseStat(b []byte) (children, pages int64) {
	start := len(b)
	for i := len(b) - 1; i >= 0; i-- { // the program's name may hold anything, brackets too
		if b[i] == ')' {
			start = i
			break
		}
	}
	field := 2
	for i := start; i < len(b); i++ {
		if b[i] != ' ' {
			continue
		}
		field++
		switch field {
		case 16, 17:
			children += leadingInt(b[i+1:])
		case 24:
			return children, leadingInt(b[i+1:])
		}
	}
	return children, 0
}

func leadingInt(b []byte) int64 {
	var v int64
	for _, c := range b {
		if c < '0' || c > '9' {
			break
		}
		v = v*10 + int64(c-'0')
	}
	return v
}
