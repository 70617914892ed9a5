//go:build linux

package main

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"syscall"
	"time"

	"github.com/filohttp/filo/internal/gotool"
	"github.com/filohttp/filo/internal/soak/kit"
)

// hostTrials returns the trials with little memory, and with a full disk.
func hostTrials() []trial {
	return []trial{
		{"GOMEMLIMIT=24MiB", true, func(a *attempt) error { return a.littleMemory("") }},
		{"a cgroup of 96 MB, with GOMEMLIMIT=64MiB", false, func(a *attempt) (err error) {
			group, err := newGroup(96 << 20)
			if err != nil {
				return fmt.Errorf("%w: %w", errUnrun, err)
			}
			defer func() { err = errors.Join(err, os.Remove(group)) }() // fails while the group has a process, but littleMemory has ended the server by then
			return a.littleMemory(group)
		}},
		{"the disk is full under uploads", true, (*attempt).fullDisk},
	}
}

// littleMemory makes many clients send and fetch large bodies at the same time.
func (a *attempt) littleMemory(group string) error {
	for _, o := range drivers {
		limit := "GOMEMLIMIT=24MiB"
		if group != "" {
			limit = "GOMEMLIMIT=64MiB"
		}
		s, err := a.newStage(o, nil, limit)
		if err != nil {
			return err
		}
		defer s.close()
		if group != "" {
			if err := os.WriteFile(filepath.Join(group, "cgroup.procs"), fmt.Append(nil, s.server.pid()), 0); err != nil {
				return err
			}
		}
		if err := s.serve(); err != nil {
			return err
		}
		result, err := s.load(load{Span: a.span(5 * time.Second), Clients: 12, Large: kit.LargeBody}, nil)
		if err != nil {
			return err
		}
		a.add(result)
		a.answered(result, "with little memory")
		status, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", s.server.pid()))
		if err != nil {
			return err
		}
		if peak := regexp.MustCompile(`VmHWM:\s*(\d+ kB)`).FindSubmatch(status); peak != nil {
			a.notes = append(a.notes, fmt.Sprintf("at most %s were resident", peak[1]))
		}
		if err := s.recovered(); err != nil {
			return err
		}
		s.close()
	}
	return nil
}

// newGroup creates a cgroup with this limit for its memory.
func newGroup(bytes int) (directory string, err error) {
	parent, limit := "/sys/fs/cgroup/memory", "memory.limit_in_bytes"
	if _, err := os.Stat("/sys/fs/cgroup/cgroup.controllers"); err == nil {
		parent, limit = "/sys/fs/cgroup", "memory.max"
	}
	if directory, err = os.MkdirTemp(parent, "filo-trial"); err != nil {
		return "", err
	}
	if err := os.WriteFile(filepath.Join(directory, limit), fmt.Append(nil, bytes), 0); err != nil {
		return "", errors.Join(err, os.Remove(directory))
	}
	return directory, nil
}

const (
	// diskSize is the size in bytes of the file system for uploads.
	diskSize = 1 << 20
	// partsDir is the directory where examples/files stores incomplete files.
	partsDir = ".uploads"
)

// fullDisk uploads to a small file system until it is full, and again after a file has been removed.
func (a *attempt) fullDisk() (err error) {
	repository, err := gotool.Repository()
	if err != nil {
		return err
	}
	dir, err := os.MkdirTemp("", "trial-disk")
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, os.RemoveAll(dir)) }()
	program, disk := filepath.Join(dir, "files"), filepath.Join(dir, "disk")
	if err := gotool.Command(filepath.Join(repository, "examples"), "build", "-o", program, "./files").Run(); err != nil {
		return err
	}
	if err := os.Mkdir(disk, 0o755); err != nil {
		return err
	}
	// The seven inodes are enough for two directories, four files, and the record that the application writes for a file while it is uploaded.
	if err := syscall.Mount("tmpfs", disk, "tmpfs", 0, fmt.Sprintf("size=%d,nr_inodes=7", diskSize)); err != nil {
		return fmt.Errorf("%w: mounting a tmpfs: %w", errUnrun, err)
	}
	defer func() {
		err = errors.Join(err, os.NewSyscallError("umount", syscall.Unmount(disk, syscall.MNT_DETACH)))
	}()
	command := exec.CommandContext(a.ctx, program, "-addr", loopback+":0", "-dir", disk)
	var said bytes.Buffer
	command.Stderr = &said
	command.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	out, err := command.StdoutPipe()
	if err != nil {
		return err
	}
	if err := command.Start(); err != nil {
		return err
	}
	defer func() {
		command.Process.Kill()
		command.Wait()
	}()
	timer := time.AfterFunc(answerTime, func() { command.Process.Kill() })
	defer timer.Stop()
	line, err := bufio.NewReader(out).ReadString('\n')
	address := regexp.MustCompile(`http://[0-9.:]+`).FindString(line)
	if address == "" {
		return fmt.Errorf("the file server says %q: %w: %s", line, err, &said)
	}
	a.begins()
	content := kit.NewPattern(a.seed)
	put := func(name string, size, status int, files ...string) {
		a.uploads(address, disk, name, content.Cut(1, size), status, files)
	}
	put("first", diskSize/2, 201, "first")
	put("second", diskSize, 507, "first") // too large for the free space; a smaller one follows later
	put("first", diskSize, 507, "first")
	put("second", diskSize/4, 201, "first", "second")
	put("third", 100, 201, "first", "second", "third")
	put("fourth", 100, 201, "first", "fourth", "second", "third")
	put("fifth", 100, 507, "first", "fourth", "second", "third") // there is free space, but no free inode
	if err := os.Remove(filepath.Join(disk, "first")); err != nil {
		return err
	}
	put("fifth", diskSize/2, 201, "fifth", "fourth", "second", "third")
	command.Process.Signal(syscall.SIGTERM)
	io.Copy(io.Discard, out)
	if err := command.Wait(); err != nil {
		a.fail("the file server ends with %v: %s", err, &said)
	}
	for line := range strings.Lines(said.String()) {
		if _, record, ok := strings.Cut(line, "level="); ok && !strings.HasPrefix(record, "INFO") {
			a.log[withoutAddress(strings.TrimSpace(record))]++
		}
	}
	return nil
}

// uploads uploads a file, and checks the status of the answer and the names in the directory.
func (a *attempt) uploads(address, directory, name string, content []byte, status int, files []string) {
	ctx, cancel := context.WithTimeout(a.ctx, 20*time.Second)
	defer cancel()
	r, err := http.NewRequestWithContext(ctx, "PUT", address+"/files/"+name, bytes.NewReader(content))
	if err != nil {
		a.fail("%w", err)
		return
	}
	response, err := http.DefaultTransport.RoundTrip(r)
	if err != nil {
		a.outcome.Errors[kindOf(err)]++
		a.fail("uploading %s: %w", name, err)
		return
	}
	io.Copy(io.Discard, response.Body)
	response.Body.Close()
	if response.StatusCode < 400 {
		a.outcome.Right["HTTP/1.1"]++
	} else {
		a.outcome.Errors[errStatus(response.StatusCode).Error()]++
	}
	if response.StatusCode != status {
		a.fail("uploading %d bytes as %s: status %d instead of %d", len(content), name, response.StatusCode, status)
	}
	entries, err := os.ReadDir(directory)
	var found []string
	for _, each := range entries {
		if each.Name() != partsDir {
			found = append(found, each.Name())
		}
	}
	if parts, err := os.ReadDir(filepath.Join(directory, partsDir)); err != nil || len(parts) > 0 {
		a.fail("after uploading %s there is %v left of uploads: %v", name, parts, err)
	}
	if err != nil || strings.Join(found, " ") != strings.Join(files, " ") {
		a.fail("after uploading %s the directory has %q instead of %q: %v", name, found, files, err)
	}
	if stored, err := os.ReadFile(filepath.Join(directory, name)); status < 400 {
		if err == nil {
			err = kit.Compare(stored, content)
		}
		if err != nil {
			a.outcome.Wrong = append(a.outcome.Wrong, fmt.Sprintf("%s: %v", name, err))
		}
	}
}
