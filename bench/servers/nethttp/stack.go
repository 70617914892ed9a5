package main

import (
	"context"
	"net/http"
	"slices"
	"time"

	"github.com/filohttp/filo/bench/internal/site"
)

// exchange is what a step gets.
type exchange struct {
	w http.ResponseWriter
	r *http.Request
}

// stack puts the ten middlewares of package site around greetUser.
func stack() http.HandlerFunc {
	steps := site.Steps(
		func(e exchange, name string) string { return e.r.Header.Get(name) },
		func(e exchange, name, value string) { e.w.Header().Set(name, value) },
	)
	h := withUser(greetUser)
	for _, step := range slices.Backward(steps) {
		next := h
		h = func(w http.ResponseWriter, r *http.Request) {
			if status := step(exchange{w, r}); status != 0 {
				http.Error(w, "refused", status)
				return
			}
			next(w, r)
		}
	}
	return recovered(timed(h))
}

func recovered(next http.HandlerFunc) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		defer func() {
			if recover() != nil {
				http.Error(w, "the handler panicked", http.StatusInternalServerError)
			}
		}()
		next(w, r)
	}
}

func timed(next http.HandlerFunc) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		begin := time.Now()
		next(w, r)
		site.Stack.Nanoseconds.Add(int64(time.Since(begin)))
	}
}

type userKey struct{}

func withUser(next http.HandlerFunc) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		next(w, r.WithContext(context.WithValue(r.Context(), userKey{}, site.User)))
	}
}

func greetUser(w http.ResponseWriter, r *http.Request) {
	if user, ok := r.Context().Value(userKey{}).(string); !ok || user != site.User {
		http.Error(w, "no user", http.StatusInternalServerError)
		return
	}
	greet(w)
}
