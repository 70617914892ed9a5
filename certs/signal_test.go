//go:build unix

package certs_test

import (
	"context"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/filohttp/filo/certs"
)

// A signal reloads the files, and is logged even if nothing has changed.
func TestReloadOn(t *testing.T) {
	a, pair, log := newAuthority(t, "CA"), files(t), new(records)
	put(t, a, pair, "a.test", later)
	store := newStore(t, certs.Options{Pairs: []certs.Pair{pair}, Interval: -1, Logger: log.logger()})
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	store.ReloadOn(ctx, syscall.SIGHUP)
	hangUp := func(want string) {
		t.Helper()
		if err := syscall.Kill(syscall.Getpid(), syscall.SIGHUP); err != nil {
			t.Fatal(err)
		}
		got, end := "", time.Now().Add(time.Minute)
		for ; !strings.Contains(got, want); got += log.take() {
			if time.Now().After(end) {
				t.Fatalf("logged %q, want %q", got, want)
			}
			time.Sleep(time.Millisecond)
		}
	}
	after := put(t, a, pair, "a.test", later)
	hangUp("certs: reloaded\"")
	if got := serial(t, store, ""); got.Cmp(after) != 0 {
		t.Errorf("got certificate %v, want %v", got, after)
	}
	hangUp("certs: reloaded\"")
	write(t, pair.Key, nil)
	hangUp("except for the refused files")
	hangUp("except for the refused files")
}
