package dek

import (
	"bytes"
	"encoding/asn1"
	"encoding/base64"
	"encoding/binary"
	"encoding/gob"
	"encoding/hex"
	"encoding/json"
	"encoding/xml"
	"expvar"
	"fmt"
	htmltemplate "html/template"
	"io"
	"log"
	"log/slog"
	"reflect"
	"strings"
	"testing"
	"text/template"
)

// hidden has a value where package fmt may not call its methods.
type hidden[T any] struct {
	v T
	m map[string]T
	s []T
}

// shown has a value where encoders look for it.
type shown[T any] struct{ V T }

// wrappings returns a pointer, the struct that it points to, and structs, maps and slices of
// a caller's that hold it.
func wrappings[T any](p *T) []any {
	return []any{
		p, &p, reflect.ValueOf(p).Elem(), // package fmt prints the value that a reflect.Value holds
		hidden[*T]{p, map[string]*T{"v": p}, []*T{p}}, &hidden[*T]{v: p}, hidden[any]{v: p},
		shown[*T]{p}, &shown[any]{p}, map[string]*T{"v": p}, []any{p}, [1]*T{p},
	}
}

// TestNothingShowsKeys prints everything that holds a secret, wrapped as a program may have it, with
// all verbs of package fmt and all encoders of the standard library, and searches the output for
// the secrets in every encoding.
func TestNothingShowsKeys(t *testing.T) {
	d := newDevice(t)
	c := d.NewContext()
	login := must(d.login.in(c))
	wrapped, o := d.wrapped(Size128, true), &DEKOptions{Login: login}
	x := must(c.NewDEK(wrapped, o))
	defer x.Close()
	y := must(New(keyOf(40, 1)))
	defer y.Close()
	cipher := must(y.Acquire([8]byte(keyOf(8, 33))))
	defer y.Release()

	var values []any
	for _, w := range [][]any{
		wrappings(x), wrappings(y), wrappings(cipher), wrappings(d.Store), wrappings(c), wrappings(login), wrappings(o),
	} {
		values = append(values, w...)
	}

	var out bytes.Buffer
	text := slog.New(slog.NewTextHandler(&out, nil))
	jsonLog := slog.New(slog.NewJSONHandler(&out, nil))
	plainLog := log.New(&out, "", 0)
	funcs := template.FuncMap{"show": fmt.Sprintf}
	tmpl := template.Must(template.New("").Funcs(funcs).Parse(`{{.}} {{show "%#v" .}} {{print .}}`))
	html := htmltemplate.Must(htmltemplate.New("").Parse(`<script>x = {{.}}</script> {{.}}`))
	encoders := map[string]func(v any) error{
		"json":     func(v any) error { return json.NewEncoder(&out).Encode(v) },
		"xml":      func(v any) error { return xml.NewEncoder(&out).Encode(v) },
		"gob":      func(v any) error { return gob.NewEncoder(&out).Encode(v) },
		"asn1":     func(v any) error { b, err := asn1.Marshal(v); out.Write(b); return err },
		"binary":   func(v any) error { return binary.Write(&out, binary.LittleEndian, v) },
		"template": func(v any) error { return tmpl.Execute(&out, v) },
		"html":     func(v any) error { return html.Execute(&out, v) },
		"expvar": func(v any) error {
			_, err := io.WriteString(&out, expvar.Func(func() any { return v }).String())
			return err
		},
	}
	for _, v := range values {
		// %p is excluded: fmt does not call Format for it, and vet reports it for
		// structs.
		for _, verb := range []string{"%v", "%+v", "%#v", "%s", "%q", "%x", "%X", "% x", "%d", "%o", "%b", "%c", "%U", "%e", "%t", "%T"} {
			fmt.Fprintf(&out, verb+"\n", v)
		}
		text.Info("text", "v", v)
		jsonLog.Info("json", "v", v)
		plainLog.Println(fmt.Errorf("failed: %v", v))
		for name, encode := range encoders {
			// Most of the encoders refuse values without exported fields, which is as good.
			if err := encode(v); err != nil {
				fmt.Fprintln(&out, name, err)
			}
		}
	}

	shown := strings.ToLower(out.String())
	for name, secret := range map[string][]byte{
		"key1": keyOf(16, 1), "key2": keyOf(16, 17), "keytag": keyOf(8, 33),
		"wrapped key": wrapped, "KEK": d.kek, "credential": d.credential, "wrapped credential": d.login.credential,
	} {
		secret = secret[:8]
		if bytes.Contains(out.Bytes(), secret) {
			t.Errorf("%s is shown as it is", name)
		}
		for _, coded := range []string{
			hex.EncodeToString(secret),
			fmt.Sprintf("% x", secret),
			strings.Trim(fmt.Sprint(secret), "[]"),
			strings.Trim(fmt.Sprintf("%#v", secret), "[]byte{}"),
			strings.ToLower(base64.RawStdEncoding.EncodeToString(secret)[:10]),
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
