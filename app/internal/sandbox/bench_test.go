//go:build linux

package sandbox

import (
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"testing"
	"time"
)

// BenchmarkOverhead runs a program that does nothing, by itself and in a box in turn, and reports the median of each
// and the difference.
func BenchmarkOverhead(b *testing.B) {
	bin := build(b, "int main() { return 0; }", "-static")
	path := filepath.Join(b.TempDir(), "p")
	if err := os.WriteFile(path, bin, 0o755); err != nil {
		b.Fatal(err)
	}
	for _, m := range []Mode{ModeCgroup, ModeUserns} {
		b.Run(string(m), func(b *testing.B) {
			s := newSandbox(b, m)
			box := newBox(b, s)
			put(b, box, "p", bin, 0o755)
			var bare, boxed []time.Duration
			for b.Loop() {
				begun := time.Now()
				if err := exec.Command(path).Run(); err != nil {
					b.Fatal(err)
				}
				half := time.Now()
				if r, err := box.Run(b.Context(), Command{Args: []string{"./p"}}); err != nil || r.Outcome != Exited {
					b.Fatal(r, err)
				}
				bare = append(bare, half.Sub(begun))
				boxed = append(boxed, time.Since(half))
			}
			ms := func(d []time.Duration) float64 {
				slices.Sort(d)
				return d[len(d)/2].Seconds() * 1000
			}
			b.ReportMetric(ms(bare), "bare-ms")
			b.ReportMetric(ms(boxed), "box-ms")
			b.ReportMetric(ms(boxed)-ms(bare), "overhead-ms")
			b.ReportMetric(boxed[len(boxed)*9/10].Seconds()*1000, "box-p90-ms")
		})
	}
}
