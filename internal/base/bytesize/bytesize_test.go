package bytesize

import "testing"

func TestParse(t *testing.T) {
	for text, want := range map[string]uint64{
		"0": 0, "512": 512, "0512": 512, "4k": 4096, "4K": 4096, "4KiB": 4096, "1m": 1 << 20, "2MiB": 2 << 20, "1G": 1 << 30, "3t": 3 << 40,
		"0x200": 512, "0X1F": 31, "0x1K": 1024, "18446744073709551615": 1<<64 - 1, "16777215T": 16777215 << 40,
	} {
		if n, ok := Parse(text); n != want || !ok {
			t.Errorf("%q is %d, %t, want %d", text, n, ok, want)
		}
	}
	for _, text := range []string{
		"", "K", "iB", "KiB", "4iB", "0x", "-1", "+1", "1.5K", "4 K", "4KB", "4kb", "4B", "4KK", "1_000", "18446744073709551616", "16777216T", "0xg", "4P",
		"4+", "4\x0b", "4\x6b\x00",
	} {
		if n, ok := Parse(text); ok {
			t.Errorf("%q is %d", text, n)
		}
	}
}
