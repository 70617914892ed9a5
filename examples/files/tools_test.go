package main

import (
	"os"
	"os/exec"
	"path/filepath"
	"testing"
)

// curl -C - continues where a download broke off. `make deps` installs curl.
func TestCurlResumesADownload(t *testing.T) {
	curl, err := exec.LookPath("curl")
	if err != nil {
		if os.Getenv("FILO_CI") != "" {
			t.Fatal(err)
		}
		t.Skip(err)
	}
	base := startNew(t)
	content := noise(5_000_000)
	uploadWhole(t, base, "big file.iso", content)
	target := filepath.Join(t.TempDir(), "big.iso")
	if err := os.WriteFile(target, []byte(content[:1_234_567]), 0o644); err != nil {
		t.Fatal(err)
	}
	out, err := exec.Command(curl, "-sSf", "-C", "-", "-w", "%{http_code} %{size_download}", "-o", target, base+"/files/big%20file.iso").CombinedOutput()
	if got := string(out); err != nil || got != "206 3765433" {
		t.Errorf("curl says %q, %v; want 206 and the bytes that were missing", got, err)
	}
	if got, err := os.ReadFile(target); err != nil || string(got) != content {
		t.Errorf("what came isn't what was sent: %d bytes, %v", len(got), err)
	}
}
