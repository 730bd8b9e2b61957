package adapter

import "testing"

// TestListBytes counts the lists of a guest's keys. A shorter list that follows is no room for the
// lists of other keys, since its configuration may fail. A key that was destroyed counts nothing.
func TestListBytes(t *testing.T) {
	c := &Context{guest: true}
	a, b := &mkeyObject{ctx: c, guest: &guestKey{}}, &mkeyObject{ctx: c, guest: &guestKey{}}
	for _, row := range []struct {
		what  string
		key   *mkeyObject
		bytes int64
		ok    bool
		total int64
	}{
		{"a list", a, mostListBytes - 100, true, mostListBytes - 100},
		{"a shorter one", a, 8, true, mostListBytes - 100},
		{"another key's that does not fit", b, 101, false, mostListBytes - 100},
		{"another key's that fits", b, 100, true, mostListBytes},
		{"one byte more", a, mostListBytes - 99, false, mostListBytes},
		{"the end of the first key", a, -1, true, 100},
		{"a request that names the destroyed key", a, 8, false, 100},
	} {
		var err error
		if row.bytes < 0 {
			row.key.discharge()
		} else {
			err = row.key.charge(row.bytes)
		}
		if n := c.listBytes.Load(); (err == nil) != row.ok || n != row.total {
			t.Errorf("%s: %v; %d bytes are counted, want %d", row.what, err, n, row.total)
		}
	}
}
