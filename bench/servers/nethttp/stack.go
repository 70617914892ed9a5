package main

import (
	"context"
	"net/http"
	"time"

	"github.com/filohttp/filo/bench/internal/site"
)

type middleware func(http.Handler) http.Handler

// stack puts the ten middlewares of site.Stack around h.
func stack(h http.Handler) http.Handler {
	all := []middleware{
		recovered, requestID, counted, timed,
		field(site.SecurityFields[0]), field(site.SecurityFields[1]), field(site.SecurityFields[2]),
		authorized, forwarded, withUser,
	}
	for i := len(all) - 1; i >= 0; i-- {
		h = all[i](h)
	}
	return h
}

func recovered(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		defer func() {
			if recover() != nil {
				http.Error(w, "the handler panicked", http.StatusInternalServerError)
			}
		}()
		next.ServeHTTP(w, r)
	})
}

func requestID(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		id := r.Header.Get(site.RequestID)
		if id == "" {
			id = site.NoRequestID
		}
		w.Header().Set(site.RequestID, id)
		next.ServeHTTP(w, r)
	})
}

func counted(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		site.Stack.Requests.Add(1)
		next.ServeHTTP(w, r)
	})
}

func timed(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		begin := time.Now()
		next.ServeHTTP(w, r)
		site.Stack.Nanoseconds.Add(int64(time.Since(begin)))
	})
}

func field(nameValue [2]string) middleware {
	name, value := nameValue[0], []string{nameValue[1]}
	return func(next http.Handler) http.Handler {
		return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			w.Header()[name] = value
			next.ServeHTTP(w, r)
		})
	}
}

func authorized(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if given := r.Header.Get("Authorization"); given != "" && given != site.Authorization {
			http.Error(w, "not authorized", http.StatusUnauthorized)
			return
		}
		next.ServeHTTP(w, r)
	})
}

func forwarded(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if site.TooMany(r.Header.Get("X-Forwarded-For")) {
			http.Error(w, "forwarded too often", http.StatusBadRequest)
			return
		}
		next.ServeHTTP(w, r)
	})
}

type userKey struct{}

func withUser(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		next.ServeHTTP(w, r.WithContext(context.WithValue(r.Context(), userKey{}, site.User)))
	})
}

func greetUser(w http.ResponseWriter, r *http.Request) {
	if user, ok := r.Context().Value(userKey{}).(string); !ok || user != site.User {
		http.Error(w, "no user", http.StatusInternalServerError)
		return
	}
	greet(w)
}
