package dek

import (
	"bytes"
	"encoding/base64"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"log/slog"
	"strings"
	"testing"
)

// TestNothingShowsKeys prints everything that holds a secret, in every way that a program
// could, and searches the output for the secret in every encoding.
func TestNothingShowsKeys(t *testing.T) {
	d := newDevice(t)
	c := d.NewContext()
	if err := c.Login(d.attr); err != nil {
		t.Fatal(err)
	}
	attr := d.wrapped(Size128, true)
	x := must(c.NewDEK(attr))
	defer x.Close()
	plain := Attr{Size: Size128, HasKeyTag: true, Key: keyOf(40, 1)}
	y := must(New(plain))
	defer y.Close()

	var out bytes.Buffer
	text := slog.New(slog.NewTextHandler(&out, nil))
	jsonLog := slog.New(slog.NewJSONHandler(&out, nil))
	for _, v := range []any{x, y, attr, plain, &plain, d.attr, &d.attr, d.Store, c, must(c.NewLogin(d.attr)), must(y.Acquire([8]byte(keyOf(8, 33))))} {
		// %p is excluded: fmt does not call Format for it, and vet reports it for
		// structs.
		for _, verb := range []string{"%v", "%+v", "%#v", "%s", "%q", "%x", "%X", "% x", "%d", "%o", "%b", "%c", "%T"} {
			fmt.Fprintf(&out, verb+"\n", v)
		}
		text.Info("text", "v", v)
		jsonLog.Info("json", "v", v)
		if err := json.NewEncoder(&out).Encode(v); err != nil {
			t.Error(err)
		}
	}
	y.Release()

	shown := strings.ToLower(out.String())
	for name, secret := range map[string][]byte{
		"key1": keyOf(16, 1), "key2": keyOf(16, 17), "keytag": keyOf(8, 33),
		"wrapped key": attr.Key, "KEK": d.kek, "credential": d.credential, "wrapped credential": d.attr.Credential,
	} {
		secret = secret[:8]
		for _, coded := range []string{
			hex.EncodeToString(secret),
			fmt.Sprintf("% x", secret),
			strings.Trim(fmt.Sprint(secret), "[]"),
			strings.Trim(fmt.Sprintf("%#v", secret), "[]byte{}"),
			strings.ToLower(base64.RawStdEncoding.EncodeToString(secret)[:10]),
			strings.ToLower(string(secret)),
		} {
			if strings.Contains(shown, coded) {
				t.Errorf("%s is shown, as %q", name, coded)
			}
		}
	}
	if !strings.Contains(shown, "dek (128 bit, keytag, wrapped)") {
		t.Error("the description is not shown either")
	}
}
