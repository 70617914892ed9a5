// Package turns compares servers, each of which is a process of the calling program, started with -serve. In each round the servers take turns, so
// that other work on the machine affects all of them.
package turns

import (
	"bufio"
	"context"
	"errors"
	"flag"
	"fmt"
	"log"
	"math"
	"os"
	"os/exec"
	"os/signal"
	"runtime/debug"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/filohttp/filo/bench/internal/measure"
	"github.com/filohttp/filo/bench/internal/proc"
)

// The durations with which Row.Load is called, for warming up and for measuring.
const (
	Warmup   = time.Second
	Measured = 2 * time.Second
)

// Row is one measurement. It sets one of Load, Figure and Wait.
type Row struct {
	Name, Unit string
	// Variant is a suffix of servers' names. If there is a server NAME+Variant, the row measures it in place of the server NAME.
	Variant string
	// Load loads the server for the duration, and returns how many units of work it has done. The figure is the CPU time or the speed.
	Load func(ctx context.Context, address string, d time.Duration) (done float64, err error)
	// Speed selects the figure of Load: the units of work per second if Speed is set, otherwise the server's CPU time for a unit of work, in
	// microseconds.
	Speed bool
	// Figure measures a server in another way, and returns the figure.
	Figure func(ctx context.Context, address string) (figure float64, err error)
	// Wait starts clients that stay idle, and returns a function that ends them. The figure is how many megabytes of memory the server uses for them.
	Wait func(ctx context.Context, address string) (end func(), err error)
}

// Repeat runs n goroutines, each of which calls f until d has passed or f fails. f gets the goroutine's number and the moment at which d has passed.
// Repeat returns the sum of the results of f.
func Repeat(n int, d time.Duration, f func(i int, until time.Time) (done float64, err error)) (sum float64, err error) {
	var all sync.WaitGroup
	var mu sync.Mutex
	until := time.Now().Add(d)
	for i := range n {
		all.Go(func() {
			done, failed := 0.0, error(nil)
			for failed == nil && time.Now().Before(until) {
				var more float64
				more, failed = f(i, until)
				done += more
			}
			mu.Lock()
			defer mu.Unlock()
			sum += done
			err = errors.Join(err, failed)
		})
	}
	all.Wait()
	return sum, err
}

// Comparison is what a program compares.
type Comparison struct {
	Rows []Row
	// Servers has a function for each server, which listens on a free port. The function returns the address for the clients, and a function that
	// serves.
	Servers map[string]func() (address string, serve func() error, err error)
	// Order has the servers' names, separated by commas. All servers are compared with the first one.
	Order string
	// Check returns an error unless a server's answers are those that the loads expect.
	Check func(ctx context.Context, address string) error
}

// Main is the main function of a program: it reads the command line and runs the comparison. After an error it ends the process with a message.
func (c *Comparison) Main() {
	log.SetFlags(0)
	name := flag.String("serve", "", "serve as one of the servers, until standard input ends")
	rounds := flag.Int("rounds", 10, "how often each row is measured with each server")
	only := flag.String("rows", "", "the rows, separated by commas; default all")
	servers := flag.String("servers", c.Order, "the servers, separated by commas; the first one is what the others are compared with")
	report := flag.Bool("report", false, "print a table in Markdown at the end")
	flag.Parse()
	ctx, cancel := signal.NotifyContext(context.Background(), os.Interrupt)
	defer cancel()
	if *name != "" {
		log.Fatal(c.serve(*name))
	}
	if *only != "" {
		names := strings.Split(*only, ",")
		c.Rows = slices.DeleteFunc(slices.Clone(c.Rows), func(r Row) bool { return !slices.Contains(names, r.Name) })
	}
	figures, order := make(figures), strings.Split(*servers, ",")
	for round := range *rounds {
		if err := c.measure(ctx, order, figures); err != nil {
			log.Fatal(err)
		}
		fmt.Printf("\nafter %d of %d rounds: medians, and the median of each round's ratio to %s with the smallest and the largest one\n",
			round+1, *rounds, order[0])
		c.print(order, figures)
	}
	if *report {
		c.report(order, figures)
	}
}

// serve runs the server and prints its address. For each line of standard input, it returns unused memory to the system, and then prints the line.
func (c *Comparison) serve(name string) error {
	start := c.Servers[name]
	if start == nil {
		return fmt.Errorf("there is no server %q", name)
	}
	address, serve, err := start()
	if err != nil {
		return err
	}
	ended := make(chan error, 1)
	go func() { ended <- serve() }()
	fmt.Println(address)
	go func() {
		lines := bufio.NewScanner(os.Stdin)
		for lines.Scan() {
			debug.FreeOSMemory()
			fmt.Println(lines.Text())
		}
		os.Exit(0)
	}()
	return <-ended
}

// figures maps the names of a row and a server to their figures, one for each round.
type figures map[[2]string][]float64

// measure measures all rows once with each server.
func (c *Comparison) measure(ctx context.Context, order []string, all figures) error {
	for _, r := range c.Rows {
		for _, name := range order {
			figure, err := c.run(ctx, &r, name)
			if err != nil {
				return fmt.Errorf("%s, %s: %w", r.Name, name, err)
			}
			key := [2]string{r.Name, name}
			all[key] = append(all[key], figure)
		}
	}
	return nil
}

// print prints the figures of all rounds so far.
func (c *Comparison) print(order []string, all figures) {
	for _, r := range c.Rows {
		fmt.Printf("%-16s", r.Name)
		for _, name := range order {
			fmt.Printf("  %s %.2f %s", name, measure.Median(all[[2]string{r.Name, name}]), r.Unit)
			if name != order[0] {
				ratios := all.ratios(r.Name, name, order[0])
				fmt.Printf(" × %.2f (%.2f to %.2f)", measure.Median(ratios), slices.Min(ratios), slices.Max(ratios))
			}
		}
		fmt.Println()
	}
}

// ratios returns, for each round, the ratio of a server's figure to the figure of another server, base.
func (f figures) ratios(row, name, base string) []float64 {
	ratios := slices.Clone(f[[2]string{row, name}])
	for i, figure := range f[[2]string{row, base}] {
		ratios[i] /= figure
	}
	return ratios
}

// report prints a table in Markdown: the medians, and in brackets the medians of the ratios to the first server.
func (c *Comparison) report(order []string, all figures) {
	fmt.Printf("\n| | %s |\n|%s\n", strings.Join(order, " | "), strings.Repeat(" --- |", len(order)+1))
	for _, r := range c.Rows {
		fmt.Printf("| %s, %s |", r.Name, r.Unit)
		for _, name := range order {
			median := measure.Median(all[[2]string{r.Name, name}])
			fmt.Printf(" %.*f", max(0, 2-int(math.Log10(max(median, 1)))), median)
			if name != order[0] {
				fmt.Printf(" (× %.2f)", measure.Median(all.ratios(r.Name, name, order[0])))
			}
			fmt.Print(" |")
		}
		fmt.Println()
	}
}

// run measures the row with a server.
func (c *Comparison) run(ctx context.Context, r *Row, name string) (figure float64, err error) {
	ctx, cancel := context.WithTimeout(ctx, 2*time.Minute)
	defer cancel()
	if c.Servers[name+r.Variant] != nil { // a plain server would do less work, so its figure would be too low
		name += r.Variant
	}
	program, err := os.Executable()
	if err != nil {
		return 0, err
	}
	cmd := exec.CommandContext(ctx, program, "-serve", name)
	cmd.Stderr = os.Stderr
	in, err := cmd.StdinPipe()
	if err != nil {
		return 0, err
	}
	out, err := cmd.StdoutPipe()
	if err != nil {
		return 0, err
	}
	if err := cmd.Start(); err != nil {
		return 0, err
	}
	defer cmd.Wait()
	defer in.Close()
	lines := bufio.NewScanner(out)
	if !lines.Scan() {
		return 0, errors.Join(errors.New("the server hasn't started"), lines.Err())
	}
	address, pids := lines.Text(), []int{cmd.Process.Pid}
	if err := c.Check(ctx, address); err != nil {
		return 0, err
	}
	if r.Figure != nil {
		return r.Figure(ctx, address)
	}
	if r.Load != nil {
		return r.measureLoad(ctx, address, pids)
	}
	return r.measureMemory(ctx, address, pids, func() error {
		fmt.Fprintln(in, "free")
		lines.Scan()
		return lines.Err()
	})
}

func (r *Row) measureLoad(ctx context.Context, address string, pids []int) (figure float64, err error) {
	if _, err := r.Load(ctx, address, Warmup); err != nil {
		return 0, err
	}
	before, err := proc.ReadUsage(pids)
	if err != nil {
		return 0, err
	}
	begin := time.Now()
	done, err := r.Load(ctx, address, Measured)
	if err != nil {
		return 0, err
	}
	took := time.Since(begin)
	after, err := proc.ReadUsage(pids)
	if r.Speed {
		return done / took.Seconds(), err
	}
	return float64(after.Minus(before).CPU.Nanoseconds()) / 1000 / done, err
}

func (r *Row) measureMemory(ctx context.Context, address string, pids []int, free func() error) (megabytes float64, err error) {
	_, before, err := proc.ReadMemory(pids)
	if err != nil {
		return 0, err
	}
	end, err := r.Wait(ctx, address)
	if err != nil {
		return 0, err
	}
	defer end()
	if err := free(); err != nil {
		return 0, err
	}
	_, after, err := proc.ReadMemory(pids)
	return (float64(after) - float64(before)) / 1e6, err
}
