package sock

import (
	"encoding/binary"
	"net"
	"net/netip"
	"strconv"
	"syscall"
	"unsafe"
)

// Address is a socket address in the kernel's format (struct sockaddr): family, port, address, and the scope of an IPv6 address.
type Address [28]byte

// Accept accepts a connection, and makes its descriptor non-blocking. It skips connections that broke before they were accepted.
func Accept(fd int, address *Address) (int, syscall.Errno) {
	for {
		size := uint32(len(address))
		n, _, errno := syscall.RawSyscall6(sysAccept4, uintptr(fd), uintptr(unsafe.Pointer(address)),
			uintptr(unsafe.Pointer(&size)), syscall.SOCK_NONBLOCK|syscall.SOCK_CLOEXEC, 0, 0)
		switch errno {
		case 0:
			return int(n), 0
		case syscall.EINTR, syscall.ECONNABORTED:
		default:
			return 0, errno
		}
	}
}

// Peer stores the address of a connection's client in address.
func Peer(fd int, address *Address) syscall.Errno {
	size := uint32(len(address))
	_, _, errno := syscall.RawSyscall(sysGetpeername, uintptr(fd), uintptr(unsafe.Pointer(address)), uintptr(unsafe.Pointer(&size)))
	return errno
}

// AddrPort returns the IP address and the port. The result is invalid if the address isn't an IP address.
func (a *Address) AddrPort() netip.AddrPort {
	port := binary.BigEndian.Uint16(a[2:])
	switch binary.NativeEndian.Uint16(a[:]) {
	case syscall.AF_INET:
		return netip.AddrPortFrom(netip.AddrFrom4([4]byte(a[4:8])), port)
	case syscall.AF_INET6:
		return addrPort6([16]byte(a[8:24]), binary.NativeEndian.Uint32(a[24:]), port)
	}
	return netip.AddrPort{}
}

func addrPort6(address [16]byte, scope uint32, port uint16) netip.AddrPort {
	ip := netip.AddrFrom16(address).Unmap()
	if ip.Is6() && scope != 0 {
		zone := strconv.FormatUint(uint64(scope), 10)
		if i, err := net.InterfaceByIndex(int(scope)); err == nil {
			zone = i.Name
		}
		ip = ip.WithZone(zone)
	}
	return netip.AddrPortFrom(ip, port)
}

// LocalAddr returns the address of the server's end of a connection.
func LocalAddr(fd int) net.Addr {
	switch address, _ := syscall.Getsockname(fd); address := address.(type) {
	case *syscall.SockaddrInet4:
		return &net.TCPAddr{IP: net.IP(address.Addr[:]), Port: address.Port}
	case *syscall.SockaddrInet6:
		return net.TCPAddrFromAddrPort(addrPort6(address.Addr, address.ZoneId, uint16(address.Port)))
	case *syscall.SockaddrUnix:
		return &net.UnixAddr{Name: address.Name, Net: "unix"}
	}
	return &net.TCPAddr{}
}
