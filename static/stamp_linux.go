package static

import (
	"io/fs"
	"syscall"
)

// addSystem adds what the operating system knows about one of its own files.
func (s *stamp) addSystem(info fs.FileInfo) {
	if st, ok := info.Sys().(*syscall.Stat_t); ok {
		s.changed, s.device, s.inode = st.Ctim.Nano(), uint64(st.Dev), st.Ino
	}
}
