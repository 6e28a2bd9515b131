// Kernel of Go contexts: runs cells in one yaegi interpreter, as docs/reference/inside.md describes.
// It is itself a script of yaegi, so that the image needs no Go compiler.
package main

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"go/scanner"
	"go/token"
	"os"
	"os/signal"
	"reflect"
	"regexp"
	"strconv"
	"strings"
	"sync"
	"syscall"

	"github.com/traefik/yaegi/interp"
	"github.com/traefik/yaegi/stdlib"
	"github.com/traefik/yaegi/stdlib/unrestricted"
)

type message struct {
	Cell      int    `json:"cell"`
	Code      string `json:"code"`
	Interrupt int    `json:"interrupt"`
}

type statement struct {
	text        string
	line        int
	keyword     string
	declaration bool
}

type kernel struct {
	interpreter *interp.Interpreter
	replies     *os.File
	imported    map[string]bool
	lock        sync.Mutex
	running     int
	cancel      context.CancelFunc
}

const maxText = 1000000

var position = regexp.MustCompile(`^(?:_\.go:)?(\d+):(\d+): `)

func main() {
	signal.Notify(make(chan os.Signal, 1), os.Interrupt)
	commands := inherited("PADDOCK_KERNEL_COMMANDS")
	k := &kernel{replies: inherited("PADDOCK_KERNEL_REPLIES")}
	k.interpreter = interp.New(interp.Options{Stdin: os.Stdin, Stdout: os.Stdout, Stderr: os.Stderr, Env: os.Environ()})
	k.interpreter.Use(stdlib.Symbols)
	k.interpreter.Use(unrestricted.Symbols)
	k.imported = map[string]bool{}
	cells := make(chan message, 1)
	go k.run(cells)
	lines := bufio.NewReaderSize(commands, 1<<16)
	for {
		line, err := lines.ReadBytes('\n')
		if err != nil {
			os.Exit(0)
		}
		var received message
		if json.Unmarshal(line, &received) != nil {
			continue
		}
		if received.Interrupt == 0 {
			cells <- received
			continue
		}
		k.lock.Lock()
		if k.running == received.Interrupt {
			k.cancel()
		}
		k.lock.Unlock()
	}
}

func inherited(name string) *os.File {
	number, err := strconv.Atoi(os.Getenv(name))
	if err != nil {
		panic(name + " is not a descriptor")
	}
	os.Unsetenv(name)
	syscall.CloseOnExec(number)
	return os.NewFile(uintptr(number), name)
}

func (k *kernel) run(cells chan message) {
	for cell := range cells {
		ctx, cancel := context.WithCancel(context.Background())
		k.lock.Lock()
		k.running, k.cancel = cell.Cell, cancel
		k.lock.Unlock()
		k.send(map[string]interface{}{"count": cell.Cell})
		k.execute(ctx, cell)
		k.lock.Lock()
		k.running = 0
		k.lock.Unlock()
		cancel()
		k.send(map[string]interface{}{"done": true})
	}
}

func (k *kernel) send(reply map[string]interface{}) {
	text, _ := json.Marshal(reply)
	k.replies.Write(append(text, '\n'))
}

func (k *kernel) fail(name, value string, traceback []string) {
	k.send(map[string]interface{}{"error": map[string]interface{}{
		"ename": name, "evalue": value, "traceback": append(traceback, name+": "+value),
	}})
}

// execute evaluates the statements of a cell in order, declarations that follow each other together.
func (k *kernel) execute(ctx context.Context, cell message) {
	statements, problem := split(cell.Code)
	if problem != "" {
		k.fail("SyntaxError", problem, []string{})
		return
	}
	hasMain := false
	for start := 0; start < len(statements); {
		end := start + 1
		first := statements[start]
		for end < len(statements) && groupable(first, statements[end]) {
			end++
		}
		if end == len(statements) && end-start > 1 && !first.declaration {
			end-- // The last statement alone has the result.
		}
		source := ""
		for index := start; index < end; index++ {
			text := statements[index].text
			if strings.HasPrefix(text, "func main()") {
				// yaegi would run a function main with every later cell.
				hasMain = true
				text = strings.Replace(text, "main", "cellMain", 1)
			}
			source += strings.TrimPrefix(text, "import") + "\n"
		}
		if first.keyword == "import" {
			if !k.importPackages(ctx, cell.Cell, source, first.line) {
				return
			}
			start = end
			continue
		}
		value, ok := k.evaluate(ctx, cell.Cell, source, first.line)
		if !ok {
			return
		}
		if end == len(statements) && isExpression(statements[end-1]) {
			k.show(value)
		}
		start = end
	}
	if hasMain {
		k.evaluate(ctx, cell.Cell, "cellMain()", 1)
	}
}

// importPackages imports what has not been imported yet, because yaegi refuses a second import.
func (k *kernel) importPackages(ctx context.Context, cell int, source string, line int) bool {
	for _, found := range imports.FindAllStringSubmatch(source, -1) {
		wanted := "import " + found[1] + found[2]
		if k.imported[wanted] {
			continue
		}
		if _, ok := k.evaluate(ctx, cell, wanted, line); !ok {
			return false
		}
		k.imported[wanted] = true
	}
	return true
}

func (k *kernel) evaluate(ctx context.Context, cell int, source string, line int) (value reflect.Value, ok bool) {
	defer func() {
		// Some code that yaegi does not know makes it panic.
		if problem := recover(); problem != nil {
			k.fail("InterpreterError", fmt.Sprint("yaegi, which interprets Go here, does not support this code: ", problem), []string{})
			value, ok = reflect.Value{}, false
		}
	}()
	value, err := k.interpreter.EvalWithContext(ctx, source)
	if ctx.Err() != nil {
		k.fail("Interrupted", "the cell was interrupted", []string{})
		return value, false
	}
	if err == nil {
		return value, true
	}
	where := fmt.Sprintf("cell %d", cell)
	text := err.Error()
	if found := position.FindStringSubmatch(text); found != nil {
		number, _ := strconv.Atoi(found[1])
		where += fmt.Sprintf(", line %d", number+line-1)
		text = strings.TrimPrefix(text, found[0])
	} else {
		where += fmt.Sprintf(", from line %d", line)
	}
	name := "CompileError"
	if fmt.Sprintf("%T", err) == "interp.Panic" {
		name = "panic"
	}
	if strings.HasPrefix(text, "CFG ") {
		name, text = "InterpreterError", "yaegi, which interprets Go here, does not support this code: "+text
	}
	k.fail(name, text, []string{where})
	return value, false
}

func (k *kernel) show(value reflect.Value) {
	if !value.IsValid() || !value.CanInterface() {
		return
	}
	// yaegi's value of a call without results.
	if value.Kind() == reflect.Ptr && value.Type().Elem().Kind() == reflect.Interface {
		return
	}
	text := fmt.Sprintf("%+v", value.Interface())
	if len(text) > maxText {
		text = text[:maxText] + "…"
	}
	k.send(map[string]interface{}{"result": map[string]interface{}{"text/plain": text}})
}

func groupable(first, next statement) bool {
	if first.declaration != next.declaration {
		return false
	}
	return (first.keyword == "import") == (next.keyword == "import")
}

var imports = regexp.MustCompile("((?:[A-Za-z_.][A-Za-z_0-9]* +)?)(\"[^\"\\n]+\"|`[^`\\n]+`)")
var printing = regexp.MustCompile(`^(fmt\.(Print|Fprint)|print(ln)?\()`)

func isExpression(last statement) bool {
	return !last.declaration && last.keyword == "expression" && !printing.MatchString(last.text)
}

// split returns the statements of a cell at the top level, without a package clause.
func split(code string) (statements []statement, problem string) {
	files := token.NewFileSet()
	file := files.AddFile("", files.Base(), len(code))
	var tokens scanner.Scanner
	tokens.Init(file, []byte(code), func(at token.Position, text string) {
		if problem == "" {
			problem = fmt.Sprintf("line %d: %s", at.Line, text)
		}
	}, 0)
	depth, start := 0, -1
	kinds := []token.Token{}
	assigns, inHeader := false, false
	for {
		at, kind, literal := tokens.Scan()
		offset := file.Offset(at)
		if kind == token.EOF {
			break
		}
		if kind == token.SEMICOLON && depth == 0 && inHeader && literal == ";" {
			continue
		}
		if kind == token.SEMICOLON && depth == 0 {
			if start >= 0 {
				statements = append(statements, newStatement(code[start:offset], file.Line(file.Pos(start)), kinds, assigns))
			}
			start = -1
			kinds = []token.Token{} // yaegi cannot assign nil together with other values.
			assigns = false
			inHeader = false
			continue
		}
		if start < 0 {
			start = offset
		}
		if len(kinds) < 3 {
			kinds = append(kinds, kind)
		}
		switch kind {
		case token.FOR, token.IF, token.SWITCH:
			inHeader = inHeader || depth == 0
		case token.LPAREN, token.LBRACE, token.LBRACK:
			if kind == token.LBRACE && depth == 0 {
				inHeader = false
			}
			depth++
		case token.RPAREN, token.RBRACE, token.RBRACK:
			depth--
		case token.ASSIGN, token.DEFINE, token.INC, token.DEC, token.ARROW, token.ADD_ASSIGN, token.SUB_ASSIGN,
			token.MUL_ASSIGN, token.QUO_ASSIGN, token.REM_ASSIGN, token.AND_ASSIGN, token.OR_ASSIGN, token.XOR_ASSIGN,
			token.SHL_ASSIGN, token.SHR_ASSIGN, token.AND_NOT_ASSIGN:
			assigns = assigns || (depth == 0 && (kind != token.ARROW || len(kinds) > 1))
		}
	}
	if start >= 0 {
		statements = append(statements, newStatement(code[start:], file.Line(file.Pos(start)), kinds, assigns))
	}
	if len(statements) > 0 && statements[0].keyword == "package" {
		statements = statements[1:]
	}
	return statements, problem
}

func newStatement(text string, line int, kinds []token.Token, assigns bool) statement {
	made := statement{text: text, line: line, keyword: kinds[0].String()}
	switch kinds[0] {
	case token.IMPORT, token.TYPE, token.CONST, token.VAR:
		made.declaration = true
	case token.FUNC:
		// `func name(` and `func (receiver) name(` are declarations, `func() {}()` is an expression.
		made.declaration = len(kinds) > 1 && (kinds[1] == token.IDENT || method.MatchString(text))
	}
	switch kinds[0] {
	case token.IF, token.FOR, token.SWITCH, token.SELECT, token.GO, token.DEFER, token.RETURN, token.LBRACE, token.GOTO,
		token.BREAK, token.CONTINUE, token.PACKAGE:
	default:
		if !made.declaration && !assigns {
			made.keyword = "expression"
			if kinds[0] == token.FUNC {
				made.text = "(" + text + ")"
			}
		}
	}
	return made
}

var method = regexp.MustCompile(`^func\s*\([^)]*\)\s*[A-Za-z_]\w*\s*\(`)
