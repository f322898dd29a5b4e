package images

import (
	"errors"
	"testing"

	"millrace/internal/operator/cache"
)

// fakeCompiler is a compiler whose image consists of the compute capability and the source.
type fakeCompiler struct {
	calls int
	err   error
}

func (f *fakeCompiler) Version() string { return "12.4" }

func (f *fakeCompiler) Compile(s Source, compute string, options []string) (image []byte, warnings string, err error) {
	f.calls++
	if f.err != nil {
		return nil, "", f.err
	}
	return append([]byte(compute), s.Text...), "careful", nil
}

// maker returns a Maker with a cache in the given folder. opened is the number of times that the compiler was opened.
func maker(t *testing.T, folder, identity string, c Compiler) (m *Maker, opened *int) {
	t.Helper()
	kept, err := cache.Open(folder)
	if err != nil {
		t.Fatal(err)
	}
	opened = new(int)
	return &Maker{Identity: identity, Cache: kept, Open: func() (Compiler, error) {
		*opened++
		return c, nil
	}}, opened
}

// TestTheCompilerIsOpenedOnlyForWhatTheCacheLacks: a start with a complete cache doesn't open the compiler, because opening it
// takes longer than reading the cache.
func TestTheCompilerIsOpenedOnlyForWhatTheCacheLacks(t *testing.T) {
	folder, source := t.TempDir(), Source{Name: "a.cu", Text: []byte("code")}
	c := &fakeCompiler{}
	first, opened := maker(t, folder, "libnvrtc.so.12.4.127 1", c)
	for range 2 {
		image, err := first.Image(source, "9.0")
		if err != nil || string(image.Code) != "9.0code" || image.Cached || image.Warnings != "careful" || image.NotKept != nil {
			t.Errorf("first start: %+v, %v", image, err)
		}
	}
	if image, err := first.Image(source, "8.0"); err != nil || string(image.Code) != "8.0code" {
		t.Errorf("another GPU: %+v, %v", image, err)
	}
	if c.calls != 2 || *opened != 1 {
		t.Errorf("compiled %d times with %d compilers, want 2 and 1", c.calls, *opened)
	}
	second, opened := maker(t, folder, "libnvrtc.so.12.4.127 1", c)
	if image, err := second.Image(source, "9.0"); err != nil || string(image.Code) != "9.0code" || !image.Cached || *opened != 0 {
		t.Errorf("second start: %+v, %v, with %d compilers", image, err, *opened)
	}
	third, opened := maker(t, folder, "libnvrtc.so.13.0.88 2", c)
	if image, err := third.Image(source, "9.0"); err != nil || image.Cached || *opened != 1 {
		t.Errorf("another compiler: %+v, %v, with %d compilers", image, err, *opened)
	}
}

// TestWithoutAFileTheCompilerIsItsVersion: without an identity, each start opens the compiler, but images are still
// cached.
func TestWithoutAFileTheCompilerIsItsVersion(t *testing.T) {
	folder, source := t.TempDir(), Source{Name: "a.cu", Text: []byte("code")}
	for _, cached := range []bool{false, true} {
		m, opened := maker(t, folder, "", &fakeCompiler{})
		if image, err := m.Image(source, "9.0"); err != nil || image.Cached != cached || *opened != 1 {
			t.Errorf("%+v, %v, with %d compilers", image, err, *opened)
		}
	}
}

func TestErrorsAreReturned(t *testing.T) {
	source, wrong := Source{Name: "a.cu", Text: []byte("code")}, errors.New("a.cu(1): error")
	m, _ := maker(t, t.TempDir(), "x", &fakeCompiler{err: wrong})
	if _, err := m.Image(source, "9.0"); !errors.Is(err, wrong) {
		t.Errorf("an invalid source: error %v", err)
	}
	missing := errors.New("no NVRTC")
	for _, identity := range []string{"", "x"} {
		m, _ = maker(t, t.TempDir(), identity, nil)
		m.Open = func() (Compiler, error) { return nil, missing }
		if _, err := m.Image(source, "9.0"); !errors.Is(err, missing) {
			t.Errorf("no compiler: error %v", err)
		}
	}
}
