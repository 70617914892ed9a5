// Package walklist has a list whose members may be added and removed while walks through it are in progress.
package walklist

import (
	"cmp"
	"slices"
)

// PageSize is the number of members in a page of a list. Each Take of a walk returns at most that many.
const PageSize = 256

// Member is an element of a list. It stores its index in the list.
type Member interface {
	comparable
	ListIndex() *int32
}

// List is an unordered list. Its members are pointers that lie side by side in pages, so during a walk the processor can fetch many of the structs at
// once. In a linked list it would have to fetch each struct to find the next one. The zero List is empty. It isn't safe for concurrent use.
type List[T Member] struct {
	pages []*[PageSize]T
	count int
	walks []*Walk // walks in progress
}

// Walk is a walk through a list, from its end to its beginning.
type Walk struct {
	left int // the members before this index haven't been visited yet
}

func (l *List[T]) at(i int) *T { return &l.pages[i/PageSize][i%PageSize] }

// put stores a member at an index.
func (l *List[T]) put(i int, c T) {
	*l.at(i) = c
	*c.ListIndex() = int32(i)
}

// Len returns how many members there are.
func (l *List[T]) Len() int { return l.count }

// Add appends a member. Walks in progress don't visit it, since they began at the old end and go towards the beginning.
func (l *List[T]) Add(c T) {
	if l.count == len(l.pages)*PageSize {
		l.pages = append(l.pages, new([PageSize]T))
	}
	l.put(l.count, c)
	l.count++
}

// Remove removes a member, and moves the last member into the hole. But if a walk hasn't reached the hole yet, Remove first fills the hole with the
// last member that this walk hasn't visited. The hole is then where that member was. Remove does this for each such walk in turn, and only then
// moves the list's last member. So no walk misses a member or visits it twice.
func (l *List[T]) Remove(c T) {
	hole := int(*c.ListIndex())
	if len(l.walks) > 1 {
		slices.SortFunc(l.walks, func(a, b *Walk) int { return cmp.Compare(a.left, b.left) })
	}
	for _, w := range l.walks {
		if hole < w.left {
			w.left--
			hole = l.fill(hole, w.left)
		}
	}
	l.count--
	var none T
	*l.at(l.fill(hole, l.count)) = none
	if spare := len(l.pages) - 2; spare >= 0 && l.count <= spare*PageSize {
		l.pages[spare+1] = nil
		l.pages = l.pages[:spare+1]
	}
}

// fill moves the member at index from into the hole, unless from is the hole. It returns from, the new hole.
func (l *List[T]) fill(hole, from int) int {
	if from != hole {
		l.put(hole, *l.at(from))
	}
	return from
}

// Begin begins a walk. The caller must call End.
func (l *List[T]) Begin() *Walk {
	w := &Walk{left: l.count}
	l.walks = append(l.walks, w)
	return w
}

// End ends a walk.
func (l *List[T]) End(w *Walk) {
	l.walks = slices.DeleteFunc(l.walks, func(each *Walk) bool { return each == w })
}

// Take stores the next members of a walk in batch, and returns their number, which is 0 at the end of the walk.
func (l *List[T]) Take(w *Walk, batch *[PageSize]T) int {
	if w.left == 0 {
		return 0
	}
	page := (w.left - 1) / PageSize
	n := copy(batch[:], l.pages[page][:w.left-page*PageSize])
	w.left -= n
	return n
}
