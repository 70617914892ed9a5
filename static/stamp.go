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
	modified      int64 // in nanoseconds since 1970; 0 is unknown
	changed       int64 // the same for the last change of content or metadata, which no program can set; 0 is unknown
	device, inode uint64
}

// stampOfState returns the stamp for a file's state as package localfile reads it.
func stampOfState(s localfile.State) stamp {
	return stamp{s.Size, s.Modified, s.Changed, s.Device, s.Inode}
}

// settleTime is how old the last change must be, so that the next change surely gets another time: some file systems count in steps of two
// seconds.
const settleTime = 2 * time.Second

func stampOf(info fs.FileInfo) stamp {
	s := stamp{size: info.Size()}
	if t := info.ModTime(); known(t) {
		s.modified = t.UnixNano()
	}
	s.addSystem(info)
	return s
}

// known reports whether a time of modification is a real one. Both zeros stand for none.
func known(t time.Time) bool { return !t.IsZero() && !t.Equal(time.Unix(0, 0)) }

// settled reports whether every other content that the file gets will have another stamp.
func (s *stamp) settled(now time.Time) bool {
	last := cmp.Or(s.changed, s.modified)
	return s.modified != 0 && last <= now.Add(-settleTime).UnixNano()
}

// outdated reports whether the encoded file is older than the plain one. It compares whole seconds, because some programs set only those.
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
	// The tag hides what it is made of: an inode number reveals something of the file system.
	tag := hashTag(sha256.Sum256(b[:]))
	if s.changed == 0 || !settled {
		return "W/" + tag
	}
	return tag
}

// contentTag returns the entity tag of a content.
func contentTag(body []byte) string { return hashTag(sha256.Sum256(body)) }

// package middleware makes its entity tags by hashTag, too.
func hashTag(sum [sha256.Size]byte) string {
	return `"` + base64.RawURLEncoding.EncodeToString(sum[:16]) + `"`
}
