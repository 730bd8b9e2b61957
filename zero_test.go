package softmkey_test

import (
	"context"
	"errors"
	"reflect"
	"syscall"
	"testing"

	"github.com/softmkey/softmkey/cm"
	"github.com/softmkey/softmkey/dek"
	"github.com/softmkey/softmkey/mkey"
	"github.com/softmkey/softmkey/mkeyio"
	"github.com/softmkey/softmkey/sig"
	"github.com/softmkey/softmkey/verbs"
)

// TestZeroValues calls each method with an error as its last result on the zero values of types that a function of
// their package makes. They return EINVAL.
func TestZeroValues(t *testing.T) {
	ended, end := context.WithCancel(t.Context())
	end()
	for _, v := range []any{
		new(sig.Reader), new(sig.Writer), new(mkey.Reader), new(mkey.Writer), new(mkeyio.View),
		new(dek.Context), new(dek.Login), new(verbs.Device), new(verbs.QP), new(cm.Conn),
	} {
		value := reflect.ValueOf(v)
		for i := range value.NumMethod() {
			method := value.Method(i)
			name := value.Type().String() + "." + value.Type().Method(i).Name
			if n := method.Type().NumOut(); n == 0 || method.Type().Out(n-1) != reflect.TypeFor[error]() || name == "*cm.Conn.Err" {
				continue
			}
			var in []reflect.Value
			for k := range method.Type().NumIn() {
				switch p := method.Type().In(k); {
				case p == reflect.TypeFor[context.Context]():
					in = append(in, reflect.ValueOf(ended))
				case p == reflect.TypeFor[[]byte]():
					in = append(in, reflect.ValueOf(make([]byte, 1)))
				case method.Type().IsVariadic() && k == method.Type().NumIn()-1:
				default:
					in = append(in, reflect.Zero(p))
				}
			}
			out := method.Call(in)
			if err, _ := out[len(out)-1].Interface().(error); !errors.Is(err, syscall.EINVAL) {
				t.Errorf("%s: %v", name, err)
			}
		}
	}
}
