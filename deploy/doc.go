// Package deploy has files for running a server: see README.md. Its only code is the tests of these files, and the program in the folder app.
package deploy
