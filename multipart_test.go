package filo

import (
	"bytes"
	"errors"
	"io"
	"io/fs"
	"mime/multipart"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/filohttp/filo/internal/formdata"
)

// The errors of a form are *HTTPError, which wrap the exported ones.
func TestFormErrors(t *testing.T) {
	const contentType, part = "multipart/form-data; boundary=b", "--b\r\nContent-Disposition: form-data; name=a\r\n\r\n12\r\n"
	for _, test := range []struct {
		contentType string
		limits      MultipartLimits
		status      int
		wrapped     error
	}{
		{contentType, MultipartLimits{}, 0, nil},
		{contentType, MultipartLimits{MaxParts: 1}, 413, ErrTooManyParts},
		{contentType, MultipartLimits{MaxPartBytes: 1}, 413, ErrPartTooLarge},
		{"text/plain", MultipartLimits{}, 415, nil},
	} {
		form, err := formdata.Read(strings.NewReader(part+part+"--b--"), test.contentType, formdata.Limits(test.limits))
		var httpError *HTTPError
		switch err = formError(err); {
		case test.status == 0:
			if err != nil || len(form.Value["a"]) != 2 {
				t.Errorf("%v: %v", form, err)
			}
		case !errors.As(err, &httpError) || httpError.Status != test.status || test.wrapped != nil && !errors.Is(err, test.wrapped):
			t.Errorf("%q, %+v: %v", test.contentType, test.limits, err)
		}
	}
}

// A file is saved whole or not at all, only inside the directory, and never over another file.
func TestSaveFile(t *testing.T) {
	large := strings.Repeat("x", 5000)
	var body bytes.Buffer
	writer := multipart.NewWriter(&body)
	for name, content := range map[string]string{"small": "in memory", "large": large, "empty": ""} {
		file, err := writer.CreateFormFile(name, name+".txt")
		if err != nil {
			t.Fatal(err)
		}
		io.WriteString(file, content)
	}
	writer.Close()
	form, err := multipart.NewReader(&body, writer.Boundary()).ReadForm(1000)
	if err != nil {
		t.Fatal(err)
	}
	path := t.TempDir()
	directory, err := os.OpenRoot(path)
	if err != nil {
		t.Fatal(err)
	}
	defer directory.Close()
	for name, want := range map[string]string{"small": "in memory", "large": large, "empty": ""} {
		if err := SaveFile(form.File[name][0], directory, name); err != nil {
			t.Error(err)
		}
		got, err := os.ReadFile(filepath.Join(path, name))
		if info, _ := os.Stat(filepath.Join(path, name)); string(got) != want || info.Mode().Perm()&0o077 != 0 {
			t.Errorf("%s: %q, %v, %v", name, got, err, info.Mode())
		}
	}
	if err := SaveFile(form.File["large"][0], directory, "small"); !errors.Is(err, fs.ErrExist) {
		t.Errorf("over another file: %v", err)
	}
	if got, err := os.ReadFile(filepath.Join(path, "small")); string(got) != "in memory" {
		t.Errorf("the other file: %q, %v", got, err)
	}
	if err := os.Symlink(os.TempDir(), filepath.Join(path, "out")); err != nil {
		t.Skip(err)
	}
	for _, name := range []string{"../a", "/a", "out/a", "none/a", ""} {
		if err := SaveFile(form.File["small"][0], directory, name); err == nil {
			t.Errorf("saved as %q", name)
		}
	}
	if err := form.RemoveAll(); err != nil {
		t.Fatal(err)
	}
	if err := SaveFile(form.File["large"][0], directory, "late"); err == nil {
		t.Error("saved what is no longer there")
	}
	if entries, err := os.ReadDir(path); len(entries) != 4 {
		t.Errorf("left: %v, %v", entries, err)
	}
}
