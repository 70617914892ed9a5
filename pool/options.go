package pool

import (
	"cmp"
	"log"
	"math"
	"os"
	"time"
)

const (
	// DefaultAntsPoolSize is the capacity of the package's own pool. If an int has 32 bits, this value means no limit, and Cap
	// and Free return -1.
	DefaultAntsPoolSize = math.MaxInt32

	// DefaultCleanIntervalTime is the default ExpiryDuration.
	DefaultCleanIntervalTime = time.Second
)

// The states of a pool.
const (
	OPENED = iota // accepts tasks
	CLOSED        // was released
)

// Logger receives reports of panics. *log.Logger implements it.
type Logger interface {
	// Printf formats its arguments as log.Printf does. It must be safe for concurrent use.
	Printf(format string, args ...any)
}

var defaultLogger Logger = log.New(os.Stderr, "[filo/pool]: ", log.LstdFlags|log.Lmsgprefix|log.Lmicroseconds)

// Option sets an option of a new pool.
type Option func(opts *Options)

// Options are the options of a pool. The zero Options are the defaults.
type Options struct {
	// ExpiryDuration is the minimum time for which an unused worker is kept. The worker ends after one to two times this
	// duration. 0 means DefaultCleanIntervalTime.
	ExpiryDuration time.Duration

	// PreAlloc allocates the stack of workers and the queue of tasks for the initial capacity when the pool is made, and keeps
	// that memory while the pool is idle. It changes neither the order of tasks nor the speed.
	PreAlloc bool

	// MaxBlockingTasks limits how many submitters may wait at once. 0 means no limit.
	MaxBlockingTasks int

	// Nonblocking makes submitters fail with ErrPoolOverload instead of waiting.
	Nonblocking bool

	// PanicHandler is called with the value of a task's panic, on the task's goroutine and before the stack is unwound, so
	// debug.Stack shows the origin. By then the task has given up its place in the pool. If PanicHandler is nil, the panic is
	// reported to Logger.
	PanicHandler func(any)

	// Logger receives a report of each panic if there is no PanicHandler. nil means a logger to standard error.
	Logger Logger

	// DisablePurge keeps idle workers until the pool is released.
	DisablePurge bool

	// QueueSize is the number of tasks that the pool accepts beyond its capacity. These tasks wait for a worker, but their
	// submitters don't wait.
	QueueSize int

	// Growth adapts the number of workers to the fill of the queue. The zero Growth has no effect. Growth needs a QueueSize and
	// a capacity.
	Growth Growth
}

// Growth adapts the number of workers to the fill of the queue, which is the queue's length divided by QueueSize. A growing pool
// first runs at most Step tasks at once. Each task that the pool accepts while the fill is over High raises this limit by Step,
// up to the pool's capacity. Each task that the pool accepts while the fill is under Low lowers the limit by Step, down to Step.
type Growth struct {
	Step      int
	High, Low float64
}

// WithOptions sets all options, and so overrides earlier ones.
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

// complete checks the options for a pool of the given size and sets the defaults.
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
		// The limits are compared in this form because it also refuses a NaN.
		if g.Step < 1 || size <= 0 || o.QueueSize == 0 || !(0 <= g.Low && g.Low < g.High && g.High <= 1) {
			return ErrInvalidGrowth
		}
	}
	o.Logger = cmp.Or(o.Logger, defaultLogger)
	return nil
}
