//go:build linux

package main

import (
	"cmp"
	"container/heap"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"os/exec"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"time"
	"unsafe"
)

// path describes how a link treats packets.
type path struct {
	loss    float64       // the fraction of the packets that is dropped
	delay   time.Duration // of each packet
	jitter  time.Duration // the maximum of a random addition to the delay, so that packets may overtake each other
	late    float64       // the fraction of the packets that arrives lateBy later, after packets sent later
	bits    int           // per second; 0: no limit
	MTU     int           // 0: 1500. MTU and Buffers are exported because they are sent as JSON to the processes at both ends.
	Buffers int           // the size of a connection's buffers at both ends, set by sysctl; 0: unchanged
}

const (
	lateBy = 3 * time.Millisecond
	// queueTime is how long a packet may wait for a link of limited speed. A packet that would wait longer is dropped.
	queueTime = 500 * time.Millisecond
)

// link carries IP packets between two network namespaces. Each namespace has a TUN device, and the link reads and writes the device's packets
// through a file. So the kernel's own TCP retransmits the packets that the link drops.
type link struct {
	path
	ends    [2]*os.File
	gone    atomic.Bool // the link drops all packets
	carried atomic.Int64
	harmed  atomic.Int64 // packets that were dropped or delayed
	largest atomic.Int64 // the size of the largest packet
	ended   sync.WaitGroup
}

func newLink(p path, seed uint64, first, second *os.File) *link {
	l := &link{path: p, ends: [2]*os.File{first, second}}
	for i := range l.ends {
		random := rand.New(rand.NewPCG(seed, uint64(i)))
		l.ended.Go(func() { l.carry(l.ends[i], l.ends[1-i], random) })
	}
	return l
}

func (l *link) close() {
	l.ends[0].Close()
	l.ends[1].Close()
	l.ended.Wait()
}

// carry carries packets in one direction until an end is closed.
func (l *link) carry(from, to *os.File, random *rand.Rand) {
	packets := make(chan packet, 1024)
	var sender sync.WaitGroup
	sender.Go(func() { l.send(to, packets) })
	defer sender.Wait()
	defer close(packets)
	var free time.Time // when the link will have sent all packets so far
	for serial := 0; ; serial++ {
		buffer := make([]byte, 65536)
		n, err := from.Read(buffer)
		if err != nil {
			return
		}
		for largest := l.largest.Load(); int64(n) > largest && !l.largest.CompareAndSwap(largest, int64(n)); {
			largest = l.largest.Load()
		}
		// Each packet takes three numbers from the generator, even if it is dropped, so that the seed decides the fate of each packet.
		lost, late, jitter := random.Float64() < l.loss, random.Float64() < l.late, time.Duration(random.Int64N(int64(l.jitter)+1))
		now := time.Now()
		if free.Before(now) {
			free = now
		}
		if l.gone.Load() || lost || free.Sub(now) > queueTime {
			l.harmed.Add(1)
			continue
		}
		if l.bits > 0 {
			free = free.Add(time.Duration(n*8) * time.Second / time.Duration(l.bits))
		}
		due := free.Add(l.delay + jitter)
		if late {
			l.harmed.Add(1)
			due = due.Add(lateBy)
		}
		packets <- packet{due, serial, buffer[:n]}
	}
}

// send writes each packet to a device (to) when the packet is due.
func (l *link) send(to *os.File, packets <-chan packet) {
	var waiting queue
	for {
		var due <-chan time.Time
		if len(waiting) > 0 {
			due = time.After(time.Until(waiting[0].due))
		}
		select {
		case p, ok := <-packets:
			if !ok {
				return
			}
			heap.Push(&waiting, p)
		case <-due:
			if !l.gone.Load() {
				to.Write(heap.Pop(&waiting).(packet).bytes) // fails only if the device's queue is full, or the device no longer exists
				l.carried.Add(1)
			} else {
				heap.Pop(&waiting)
			}
		}
	}
}

type packet struct {
	due    time.Time
	serial int
	bytes  []byte
}

// queue is a heap of packets. The first element is due first.
type queue []packet

func (q queue) Len() int { return len(q) }
func (q queue) Less(i, j int) bool {
	return q[i].due.Before(q[j].due) || q[i].due.Equal(q[j].due) && q[i].serial < q[j].serial
}
func (q queue) Swap(i, j int) { q[i], q[j] = q[j], q[i] }
func (q *queue) Push(p any)   { *q = append(*q, p.(packet)) }
func (q *queue) Pop() any {
	last := (*q)[len(*q)-1]
	*q = (*q)[:len(*q)-1]
	return last
}

// device creates the TUN device of this process's namespace. It passes the device's file, and the sizes of buffers in this namespace, to the
// process at the other end of a socket.
func (p path) device(address string, socket int) error {
	fd, err := syscall.Open("/dev/net/tun", syscall.O_RDWR|syscall.O_CLOEXEC, 0)
	if err != nil {
		return fmt.Errorf("/dev/net/tun: %w", err)
	}
	defer syscall.Close(fd)
	const setInterface, tun, noPrefix = 0x400454ca, 0x1, 0x1000 // TUNSETIFF, IFF_TUN, IFF_NO_PI
	request := struct {
		name  [16]byte
		flags uint16
		_     [22]byte
	}{flags: tun | noPrefix}
	copy(request.name[:], "tun0")
	if _, _, errno := syscall.Syscall(syscall.SYS_IOCTL, uintptr(fd), setInterface, uintptr(unsafe.Pointer(&request))); errno != 0 {
		return os.NewSyscallError("TUNSETIFF", errno)
	}
	for _, arguments := range [][]string{
		{"link", "set", "lo", "up"}, // connections to the device's own address need it
		{"address", "add", address + "/24", "dev", "tun0"}, {"link", "set", "tun0", "up", "mtu", fmt.Sprint(cmp.Or(p.MTU, 1500))},
	} {
		if out, err := exec.Command("ip", arguments...).CombinedOutput(); err != nil {
			return fmt.Errorf("ip %s: %w: %s", arguments, err, out)
		}
	}
	var sizes []string
	for _, name := range []string{"/proc/sys/net/ipv4/tcp_rmem", "/proc/sys/net/ipv4/tcp_wmem"} {
		if p.Buffers > 0 {
			if err := os.WriteFile(name, []byte(p.sizes()), 0); err != nil {
				return err
			}
		}
		text, err := os.ReadFile(name)
		if err != nil {
			return err
		}
		sizes = append(sizes, strings.Fields(string(text))...)
	}
	return syscall.Sendmsg(socket, []byte(strings.Join(sizes, " ")), syscall.UnixRights(fd), nil, 0)
}

// sizes returns the minimum, default and maximum size of a buffer, all equal, as sysctl expects them.
func (p path) sizes() string { return fmt.Sprintf("%d %[1]d %[1]d", p.Buffers) }

// receiveDevice receives the file that the method device sends over a socket, and checks that the buffers have the path's sizes.
func (p path) receiveDevice(socket int) (*os.File, error) {
	data, rights := make([]byte, 200), make([]byte, syscall.CmsgSpace(4))
	size, n, _, _, err := syscall.Recvmsg(socket, data, rights, syscall.MSG_CMSG_CLOEXEC)
	if err != nil {
		return nil, err
	}
	messages, err := syscall.ParseSocketControlMessage(rights[:n])
	if err != nil || len(messages) != 1 {
		return nil, errors.New("the process hasn't made its network device")
	}
	fds, err := syscall.ParseUnixRights(&messages[0])
	if err != nil {
		return nil, err
	}
	if got, want := string(data[:size]), p.sizes()+" "+p.sizes(); p.Buffers > 0 && got != want {
		return nil, errors.Join(fmt.Errorf("the sizes of buffers are %s instead of %s", got, want), syscall.Close(fds[0]))
	}
	syscall.SetNonblock(fds[0], true) // so that Close unblocks a Read
	return os.NewFile(uintptr(fds[0]), "tun"), nil
}
