package pool

// minQueue is the least length of a queue's buffer.
const minQueue = 16

// queue is a first-in, first-out queue of tasks. The zero queue is empty and ready for use.
type queue[T any] struct {
	buf  []T // its length is 0 or a power of two
	head int // index of the oldest task
	n    int // the number of tasks
}

// reserve makes room for n tasks in all.
func (q *queue[T]) reserve(n int) {
	size := max(len(q.buf), minQueue)
	for size < n {
		size *= 2
	}
	if size != len(q.buf) {
		q.resize(size)
	}
}

// resize moves the tasks to a new buffer. size must be a power of two, and at least q.n.
func (q *queue[T]) resize(size int) {
	buf := make([]T, size)
	if end := q.head + q.n; end <= len(q.buf) {
		copy(buf, q.buf[q.head:end])
	} else {
		copied := copy(buf, q.buf[q.head:])
		copy(buf[copied:], q.buf[:end-len(q.buf)])
	}
	q.buf, q.head = buf, 0
}

func (q *queue[T]) push(task T) {
	if q.n == len(q.buf) {
		q.reserve(q.n + 1)
	}
	q.buf[(q.head+q.n)&(len(q.buf)-1)] = task
	q.n++
}

// pop removes and returns the oldest task. The queue must not be empty.
func (q *queue[T]) pop() T {
	var none T
	slot := &q.buf[q.head]
	task := *slot
	*slot = none // so that the task can be garbage collected
	q.head = (q.head + 1) & (len(q.buf) - 1)
	q.n--
	return task
}

// shrink halves a buffer that is at least three quarters empty.
func (q *queue[T]) shrink() {
	if len(q.buf) > minQueue && q.n <= len(q.buf)/4 {
		q.resize(len(q.buf) / 2)
	}
}

// first returns the oldest task. The queue must not be empty.
func (q *queue[T]) first() T { return q.buf[q.head] }
