package bubblewrap

import (
	"os"
	"sandbook/backends"
	"testing"
	"time"
)

func TestFirst(t *testing.T) {
	b, err := New(Options{RunDir: t.TempDir(), Install: "test"})
	if err != nil {
		t.Fatal(err)
	}
	t0 := time.Now()
	c, err := b.Probe(t.Context())
	t.Logf("%+v %v %v", c, err, time.Since(t0))
	t0 = time.Now()
	c, err = b.Probe(t.Context())
	t.Logf("%v %v", err, time.Since(t0))
	if err != nil {
		t.Fatal(err)
	}
	for range 5 {
		t0 = time.Now()
		s, err := b.Start(t.Context(), backends.Spec{ID: "a-1", Labels: backends.Labels{Install: "test"}, Guest: os.Getenv("G"), Args: []string{}})
		if err != nil {
			t.Fatal(err)
		}
		t.Log("start", time.Since(t0))
		buf := make([]byte, 20000)
		if _, err := s.Conn().Write([]byte("hi\n")); err != nil {
			t.Fatal(err)
		}
		n, err := s.Conn().Read(buf)
		t.Log(string(buf[:n]), err, time.Since(t0))
		u, err := s.(backends.Usager).Usage()
		t.Log(u, err)
		t0 = time.Now()
		t.Log(s.Kill(t.Context()), time.Since(t0))
		t.Log(s.Wait(t.Context()))
	}
}
