package pool

import (
	"log"
	"math"
	"os"
	"time"
)

const (
	// DefaultAntsPoolSize is the capacity of the package's own pool. Where an int has 32 bits that is no limit, and Cap and Free
	// return -1.
	DefaultAntsPoolSize = math.MaxInt32

	// DefaultCleanIntervalTime is the ExpiryDuration of a pool that isn't given one.
	DefaultCleanIntervalTime = time.Second
)

// The states of a pool.
const (
	OPENED = iota // takes tasks
	CLOSED        // was released
)

// Logger is told of panics. *log.Logger is one.
type Logger interface {
	// Printf is to be safe for concurrent use and to take its arguments as log.Printf does.
	Printf(format string, args ...any)
}

var defaultLogger Logger = log.New(os.Stderr, "[filo/pool]: ", log.LstdFlags|log.Lmsgprefix|log.Lmicroseconds)

// Option sets an option of a new pool.
type Option func(opts *Options)

// Options are what a pool can be told beside its capacity. The zero Options are the default.
type Options struct {
	// ExpiryDuration is how long a worker is kept that isn't used: it ends after one to two times as long. 0 is
	// DefaultCleanIntervalTime.
	ExpiryDuration time.Duration

	// PreAlloc makes a pool allocate what keeps account of its workers and tasks at once, for the capacity that it is
	// made with, and not give it back when it is idle. Neither order nor speed are others by it.
	PreAlloc bool

	// MaxBlockingTasks is how many submitters may wait at once. 0 is any number.
	MaxBlockingTasks int

	// Nonblocking makes a submitter never wait, but get ErrPoolOverload.
	Nonblocking bool

	// PanicHandler is called with the value of a task's panic, on the task's goroutine and before the stack is unwound,
	// so that debug.Stack shows where it came from. The task counts no more by then. If nil, the Logger is told.
	PanicHandler func(any)

	// Logger is told of panics if there is no PanicHandler. nil is a logger to standard error.
	Logger Logger

	// DisablePurge keeps idle workers until the pool's release.
	DisablePurge bool

	// QueueSize is how many tasks beyond the capacity are accepted. They wait for a worker, and their submitters don't.
	QueueSize int

	// Growth makes the number of workers follow the fill of the queue; the zero Growth has no effect. It needs a
	// QueueSize and a capacity.
	Growth Growth
}

// Growth is how the number of workers follows the fill of the queue, which is its length divided by QueueSize. A pool
// that grows runs no more than Step tasks at once at first. Each task that is accepted while the fill is over High lets
// it run Step more, up to its capacity; each that is accepted while the fill is under Low Step fewer, down to Step.
type Growth struct {
	Step      int
	High, Low float64
}

// WithOptions sets all options, and so undoes those before it.
func WithOptions(options Options) Option {
	return func(opts *Options) { *opts = options }
}

// WithExpiryDuration sets [Options.ExpiryDuration].
func WithExpiryDuration(expiryDuration time.Duration) Option {
	return func(opts *Options) { opts.ExpiryDuration = expiryDuration }
}

// WithPreAlloc sets [Options.PreAlloc].
func WithPreAlloc(preAlloc bool) Option {
	return func(opts *Options) { opts.PreAlloc = preAlloc }
}

// WithMaxBlockingTasks sets [Options.MaxBlockingTasks].
func WithMaxBlockingTasks(maxBlockingTasks int) Option {
	return func(opts *Options) { opts.MaxBlockingTasks = maxBlockingTasks }
}

// WithNonblocking sets [Options.Nonblocking].
func WithNonblocking(nonblocking bool) Option {
	return func(opts *Options) { opts.Nonblocking = nonblocking }
}

// WithPanicHandler sets [Options.PanicHandler].
func WithPanicHandler(panicHandler func(any)) Option {
	return func(opts *Options) { opts.PanicHandler = panicHandler }
}

// WithLogger sets [Options.Logger].
func WithLogger(logger Logger) Option {
	return func(opts *Options) { opts.Logger = logger }
}

// WithDisablePurge sets [Options.DisablePurge].
func WithDisablePurge(disable bool) Option {
	return func(opts *Options) { opts.DisablePurge = disable }
}

// WithQueueSize sets [Options.QueueSize].
func WithQueueSize(n int) Option {
	return func(opts *Options) { opts.QueueSize = n }
}

// WithGrowth sets [Options.Growth].
func WithGrowth(step int, high, low float64) Option {
	return func(opts *Options) { opts.Growth = Growth{Step: step, High: high, Low: low} }
}

// complete checks the options for a pool of that capacity and puts in the defaults.
func (o *Options) complete(size int) error {
	if o.DisablePurge {
		o.ExpiryDuration = 0
	} else if o.ExpiryDuration < 0 {
		return ErrInvalidPoolExpiry
	} else if o.ExpiryDuration == 0 {
		o.ExpiryDuration = DefaultCleanIntervalTime
	}
	if o.PreAlloc && size <= 0 {
		return ErrInvalidPreAllocSize
	}
	o.QueueSize = min(max(o.QueueSize, 0), unlimited)
	if g := o.Growth; g != (Growth{}) {
		// The comparisons are false for a NaN.
		if g.Step < 1 || size <= 0 || o.QueueSize == 0 || !(0 <= g.Low && g.Low < g.High && g.High <= 1) {
			return ErrInvalidGrowth
		}
	}
	if o.Logger == nil {
		o.Logger = defaultLogger
	}
	return nil
}
