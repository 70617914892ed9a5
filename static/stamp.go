package static

import (
	"cmp"
	"crypto/sha256"
	"encoding/base64"
	"encoding/binary"
	"io/fs"
	"time"

	"github.com/filohttp/filo/internal/localfile"
)

// stamp holds what a file system knows about a file's content without reading it. Two contents can have the same stamp, but if both stamps
// are settled, this takes deliberate effort.
type stamp struct {
	size          int64
	modified      int64 // in nanoseconds since 1970; 0 if unknown
	changed       int64 // the same for the last change of content or metadata, which no program can set; 0 if unknown
	device, inode uint64
}

// stampOfState returns the stamp for a file's state as package localfile reads it.
func stampOfState(s localfile.State) stamp {
	return stamp{s.Size, s.Modified, s.Changed, s.Device, s.Inode}
}

// settleTime is how old the last change must be, so that the next change is certain to have a different time: some file systems store
// times in steps of two seconds.
const settleTime = 2 * time.Second

func stampOf(info fs.FileInfo) stamp {
	s := stamp{size: info.Size()}
	if t := info.ModTime(); known(t) {
		s.modified = t.UnixNano()
	}
	s.addSystem(info)
	return s
}

// known reports whether a modification time is known. Both the zero Time and the Unix epoch mean that it isn't.
func known(t time.Time) bool { return !t.IsZero() && !t.Equal(time.Unix(0, 0)) }

// settled reports whether every later content of the file will have a different stamp.
func (s *stamp) settled(now time.Time) bool {
	last := cmp.Or(s.changed, s.modified)
	return s.modified != 0 && last <= now.Add(-settleTime).UnixNano()
}

// outdated reports whether the encoded file is older than the plain one. It compares whole seconds, because some programs preserve the
// times of files only to the second.
func (s *stamp) outdated(plain *stamp) bool {
	return s.modified/int64(time.Second) < plain.modified/int64(time.Second)
}

// tag returns an entity tag made from the stamp, "" if too little is known for a tag. The tag is weak unless the stamp is settled and has
// properties that a file's owner can't set.
func (s *stamp) tag(settled bool) string {
	if s.modified == 0 {
		return ""
	}
	var b [5 * 8]byte
	for i, v := range [...]uint64{uint64(s.size), uint64(s.modified), uint64(s.changed), s.device, s.inode} {
		binary.LittleEndian.PutUint64(b[8*i:], v)
	}
	// The tag is a hash, because an inode number would reveal something about the file system.
	tag := hashTag(sha256.Sum256(b[:]))
	if s.changed == 0 || !settled {
		return "W/" + tag
	}
	return tag
}

// contentTag returns the entity tag of a content.
func contentTag(body []byte) string { return hashTag(sha256.Sum256(body)) }

// hashTag returns a strong entity tag made from a hash. The ETag middleware makes its tags in the same form.
func hashTag(sum [sha256.Size]byte) string {
	return `"` + base64.RawURLEncoding.EncodeToString(sum[:16]) + `"`
}
