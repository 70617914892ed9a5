// Package http3filo x
package http3filo
