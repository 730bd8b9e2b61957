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

// TestZeroValues calls each method of the zero values of types that a function of their package makes. Those with an
// error as their last result return EINVAL, but Err, which has none to report. None of the others dereferences nil.
func TestZeroValues(t *testing.T) {
	ended, end := context.WithCancel(t.Context())
	end()
	for _, v := range []any{
		new(sig.Reader), new(sig.Writer), new(mkey.Reader), new(mkey.Writer), new(mkeyio.View),
		new(dek.Context), new(dek.Login), new(verbs.Device), new(verbs.PD), new(verbs.CQ), new(verbs.QP), new(verbs.MR), new(verbs.MKey),
		new(verbs.SRQ), new(verbs.Event), new(cm.Conn),
	} {
		value := reflect.ValueOf(v)
		for i := range value.NumMethod() {
			method := value.Method(i)
			name := value.Type().String() + "." + value.Type().Method(i).Name
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
			func() {
				defer func() {
					if p := recover(); p != nil {
						t.Errorf("%s: %v", name, p)
					}
				}()
				out := method.Call(in)
				if n := len(out); n > 0 && out[n-1].Type() == reflect.TypeFor[error]() && value.Type().Method(i).Name != "Err" {
					if err, _ := out[n-1].Interface().(error); !errors.Is(err, syscall.EINVAL) {
						t.Errorf("%s: %v", name, err)
					}
				}
			}()
		}
	}
}
