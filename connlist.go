package filo

import (
	"cmp"
	"slices"
)

// connPage is how many connections lie together in a connList. A walk takes as many at a time.
const connPage = 256

// connList is a list of connections in no particular order. They lie close together, so that who looks at all of them needn't
// have seen one to find the next: the processor fetches many at once, where a chain of pointers would have it wait for each.
type connList struct {
	pages []*[connPage]*conn
	count int
	walks []*connWalk // that are under way
}

// connWalk is a walk through a list, from its end to its beginning.
type connWalk struct {
	left int // the connections before this index are still to be visited
}

func (l *connList) at(i int) **conn { return &l.pages[i/connPage][i%connPage] }

// put makes a connection the one at an index.
func (l *connList) put(i int, c *conn) {
	*l.at(i) = c
	c.index = i
}

// add puts a connection at the end, where walks that are under way have been already.
func (l *connList) add(c *conn) {
	if l.count == len(l.pages)*connPage {
		l.pages = append(l.pages, new([connPage]*conn))
	}
	l.put(l.count, c)
	l.count++
}

// remove takes a connection out. Another one is moved to where it was: the last of all, or of those that are still to be
// visited by a walk, so that this misses none and visits none twice.
func (l *connList) remove(c *conn) {
	hole := c.index
	if len(l.walks) > 1 {
		slices.SortFunc(l.walks, func(a, b *connWalk) int { return cmp.Compare(a.left, b.left) })
	}
	for _, w := range l.walks {
		if hole < w.left {
			w.left--
			hole = l.fill(hole, w.left)
		}
	}
	l.count--
	*l.at(l.fill(hole, l.count)) = nil
	if spare := len(l.pages) - 2; spare >= 0 && l.count <= spare*connPage {
		l.pages[spare+1] = nil
		l.pages = l.pages[:spare+1]
	}
}

// fill moves the connection at an index into a hole, unless that is the hole itself, and returns where the hole is then.
func (l *connList) fill(hole, from int) int {
	if from != hole {
		l.put(hole, *l.at(from))
	}
	return from
}

// begin begins a walk, which is to be ended.
func (l *connList) begin() *connWalk {
	w := &connWalk{left: l.count}
	l.walks = append(l.walks, w)
	return w
}

// end ends a walk.
func (l *connList) end(w *connWalk) {
	l.walks = slices.DeleteFunc(l.walks, func(each *connWalk) bool { return each == w })
}

// take visits the next connections of a walk: it puts them into batch, and returns how many there are. With none left the walk
// is over.
func (l *connList) take(w *connWalk, batch *[connPage]*conn) int {
	if w.left == 0 {
		return 0
	}
	page := (w.left - 1) / connPage
	n := copy(batch[:], l.pages[page][:w.left-page*connPage])
	w.left -= n
	return n
}
