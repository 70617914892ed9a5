package openloop

// ring is a queue that grows as it must and keeps its memory. The zero value is empty.
type ring[T any] struct {
	items []T // a power of two of them
	first int
	count int
}

func (r *ring[T]) len() int { return r.count }

// at returns the item number i from the front.
func (r *ring[T]) at(i int) *T { return &r.items[(r.first+i)&(len(r.items)-1)] }

func (r *ring[T]) push(item T) {
	if r.count == len(r.items) {
		grown := make([]T, max(4, 2*len(r.items)))
		for i := range r.count {
			grown[i] = *r.at(i)
		}
		r.items, r.first = grown, 0
	}
	r.count++
	*r.at(r.count - 1) = item
}

func (r *ring[T]) pop() T {
	front := r.at(0)
	item := *front
	var zero T
	*front = zero
	r.first = (r.first + 1) & (len(r.items) - 1)
	r.count--
	return item
}
