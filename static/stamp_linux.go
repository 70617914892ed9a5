package static

import (
	"io/fs"
	"syscall"
)

// addSystem adds the time of change, the device and the inode, if info describes a file of the operating system.
func (s *stamp) addSystem(info fs.FileInfo) {
	if st, ok := info.Sys().(*syscall.Stat_t); ok {
		s.changed, s.device, s.inode = st.Ctim.Nano(), uint64(st.Dev), st.Ino
	}
}
