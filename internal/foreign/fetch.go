package main

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path"
	"path/filepath"
	"time"
)

// source is a commit of a repository that isn't a Go module.
type source struct{ repository, commit string }

// fetchTime is the maximum time for fetching one source.
const fetchTime = time.Minute

// fetch returns the directory of a source. It fetches the source once, and stores it in the user's cache directory. If the repository can't
// be reached, fetch returns errSkipped, even in CI, because no test may depend on another company's network.
func (s source) fetch() (string, error) {
	kept, err := os.UserCacheDir()
	if err != nil {
		return "", err
	}
	kept = filepath.Join(kept, "filo-foreign")
	directory := filepath.Join(kept, path.Base(s.repository)+"-"+s.commit)
	if _, err := os.Stat(directory); err == nil {
		return directory, nil
	}
	if err := os.MkdirAll(kept, 0o755); err != nil {
		return "", err
	}
	dir, err := os.MkdirTemp(kept, "fetching")
	if err != nil {
		return "", err
	}
	defer os.RemoveAll(dir)
	ctx, cancel := context.WithTimeout(context.Background(), fetchTime)
	defer cancel()
	for _, args := range [][]string{
		{"init", "-q"},
		{"fetch", "-q", "--depth", "1", s.repository, s.commit},
		{"-c", "advice.detachedHead=false", "checkout", "-q", s.commit},
	} {
		cmd := exec.CommandContext(ctx, "git", args...)
		cmd.Dir, cmd.WaitDelay = dir, time.Second
		// These variables override those that git sets for a hook, which refer to the hook's repository.
		own := filepath.Join(dir, ".git")
		cmd.Env = append(os.Environ(), "GIT_TERMINAL_PROMPT=0", "GIT_DIR="+own, "GIT_WORK_TREE="+dir, "GIT_INDEX_FILE="+filepath.Join(own, "index"))
		if output, err := cmd.CombinedOutput(); err != nil {
			return "", fmt.Errorf("%w: git %s: %w\n%s", errSkipped, args[0], err, output)
		}
	}
	if err := os.Rename(dir, directory); err != nil {
		if _, there := os.Stat(directory); there != nil { // if it exists now, another process has fetched it first
			return "", err
		}
	}
	return directory, nil
}
