// Package deploy has files for running a server: see README.md. It has no code but their tests, and the program in app.
package deploy
