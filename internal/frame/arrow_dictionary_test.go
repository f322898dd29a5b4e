package frame_test

import (
	"bytes"
	"fmt"
	"math/rand/v2"
	"strings"
	"testing"

	"github.com/apache/arrow-go/v18/arrow"
	"github.com/apache/arrow-go/v18/arrow/array"
	"github.com/apache/arrow-go/v18/arrow/ipc"
	"github.com/apache/arrow-go/v18/arrow/memory"

	"millrace/internal/frame"
)

// encoded returns a dictionary-encoded column and its records. An index of -1 is null.
func encoded(t testing.TB, typ *arrow.DictionaryType, values [][]byte, indices []int) (arrow.Array, [][]byte) {
	t.Helper()
	b := array.NewBuilder(memory.DefaultAllocator, typ.IndexType)
	records := [][]byte{}
	for _, index := range indices {
		if index < 0 {
			b.AppendNull()
			records = append(records, nil)
			continue
		}
		if err := b.AppendValueFromString(fmt.Sprint(index)); err != nil {
			t.Fatal(err)
		}
		records = append(records, values[index])
	}
	return array.NewDictionaryArray(typ, b.NewArray(), column(t, typ.ValueType, values)), records
}

// TestDictionaryEncodedColumnsRoundTrip replaces the dictionary in each record batch.
func TestDictionaryEncodedColumnsRoundTrip(t *testing.T) {
	random := rand.New(rand.NewPCG(7, 8))
	var f frame.Frame
	for _, indexType := range []arrow.DataType{
		arrow.PrimitiveTypes.Int8, arrow.PrimitiveTypes.Uint16, arrow.PrimitiveTypes.Int32, arrow.PrimitiveTypes.Uint64,
	} {
		for _, valueType := range binaryTypes {
			for compression, options := range compressions {
				typ := &arrow.DictionaryType{IndexType: indexType, ValueType: valueType}
				t.Run(typ.String()+compression, func(t *testing.T) {
					field, all := field{name: "text", typ: typ}, [][]byte{}
					for range 1 + random.IntN(3) {
						values := append([][]byte{nil}, someRecords(random, 1+random.IntN(20), 60)...)
						indices := make([]int, random.IntN(50))
						for i := range indices {
							indices[i] = random.IntN(len(values)+1) - 1
						}
						chunk, records := encoded(t, typ, values, indices)
						field.chunks, all = append(field.chunks, chunk), append(all, records...)
					}
					if err := arrowSplitter.Open(&f, "", stream(t, append(otherDictionary(t, field.chunks), field), options...)); err == nil {
						t.Fatal("no error for two candidate columns")
					}
					s := frame.Splitter{Framing: frame.Arrow, Field: "text", MaxRecord: 40}
					if err := s.Open(&f, "", stream(t, append(otherDictionary(t, field.chunks), field), options...)); err != nil {
						t.Fatal(err)
					}
					wantRecords(t, &f, all, 40)
				})
			}
		}
	}
}

// otherDictionary returns a column with a separate dictionary and as many rows as the chunks.
func otherDictionary(t testing.TB, chunks []arrow.Array) []field {
	typ := &arrow.DictionaryType{IndexType: arrow.PrimitiveTypes.Int8, ValueType: arrow.BinaryTypes.String}
	other := field{name: "other", typ: typ}
	for _, chunk := range chunks {
		rows, _ := encoded(t, typ, texts("never"), make([]int, chunk.Len()))
		other.chunks = append(other.chunks, rows)
	}
	return []field{other}
}

func TestFaultsOfDictionaries(t *testing.T) {
	typ := &arrow.DictionaryType{IndexType: arrow.PrimitiveTypes.Uint16, ValueType: arrow.BinaryTypes.String}
	rows, records := encoded(t, typ, texts("zero", "one"), []int{1, 0, 1, 1})
	good := stream(t, []field{{"text", typ, []arrow.Array{rows}}})
	wantRecords(t, open(t, arrowSplitter, good), records, 1<<20)

	at := bytes.Index(good, []byte{1, 0, 0, 0, 1, 0, 1, 0})
	body := bytes.Clone(good)
	body[at+4] = 2
	wantFault(t, arrowSplitter, body, frame.Invalid, int64(at+4))

	open(t, frame.Splitter{Framing: frame.Arrow, MaxRecords: 4}, good)
	wantFault(t, frame.Splitter{Framing: frame.Arrow, MaxRecords: 3}, good, frame.TooLarge, int64(lastMessage(good)))
}

// TestARecordBatchBeforeItsDictionary: a reused frame must not apply its former dictionary to the next message.
func TestARecordBatchBeforeItsDictionary(t *testing.T) {
	var f frame.Frame
	good := dictionaryStream(t)
	if err := arrowSplitter.Open(&f, "", good); err != nil {
		t.Fatal(err)
	}
	next := []byte{0xff, 0xff, 0xff, 0xff}
	schema := 4 + bytes.Index(good[4:], next)
	body := append(bytes.Clone(good[:schema]), good[lastMessage(good):]...)
	err := arrowSplitter.Open(&f, "", body)
	if err == nil || !strings.Contains(err.Error(), fmt.Sprintf("at byte %d: the record batch comes before its dictionary", schema)) {
		t.Errorf("Open() = %v", err)
	}
}

// lastMessage returns the position of the last message before the end marker.
func lastMessage(body []byte) int {
	return bytes.LastIndex(body[:len(body)-8], []byte{0xff, 0xff, 0xff, 0xff})
}

// TestRowsOfADictionaryStayWithinTheLimit: several rows can refer to one value, whose bytes count for each row.
func TestRowsOfADictionaryStayWithinTheLimit(t *testing.T) {
	typ := &arrow.DictionaryType{IndexType: arrow.PrimitiveTypes.Int8, ValueType: arrow.BinaryTypes.String}
	rows, records := encoded(t, typ, texts(strings.Repeat("x", 10_000)), make([]int, 50))
	body := stream(t, []field{{"text", typ, []arrow.Array{rows}}})
	wantRecords(t, open(t, frame.Splitter{Framing: frame.Arrow, MaxBytes: 500_000}, body), records, 1<<20)
	if fault := faultOf(t, frame.Splitter{Framing: frame.Arrow, MaxBytes: 499_999}, body); fault.Reason != frame.TooLarge {
		t.Errorf("%v", fault)
	}
}

func TestADictionaryThatIsExtendedIsRefused(t *testing.T) {
	typ := &arrow.DictionaryType{IndexType: arrow.PrimitiveTypes.Int8, ValueType: arrow.BinaryTypes.String}
	first, _ := encoded(t, typ, texts("a"), []int{0})
	second, _ := encoded(t, typ, texts("a", "b"), []int{1})
	body := stream(t, []field{{"text", typ, []arrow.Array{first, second}}}, ipc.WithDictionaryDeltas(true))
	if fault := faultOf(t, arrowSplitter, body); !strings.Contains(fault.Text, "extends a dictionary") {
		t.Errorf("%v", fault)
	}
}
