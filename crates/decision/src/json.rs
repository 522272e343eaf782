//! A strict JSON reader that keeps what canonical form needs: the text of numbers, and every key.

use std::borrow::Cow;

/// Python refuses longer integers, so no reference digest exists for them.
const INTEGER_DIGITS_MAX: usize = 4300;

/// Holds one JSON value; objects are sorted by key in code point order, without duplicates.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Value<'a> {
    Null,
    Bool(bool),
    /// The number as it was written.
    Number(&'a str),
    String(Cow<'a, str>),
    Array(Vec<Value<'a>>),
    Object(Vec<(Cow<'a, str>, Value<'a>)>),
}

impl<'a> Value<'a> {
    /// Reads one JSON text whose values nest at most `depth_max` levels below the outermost.
    pub fn parse(text: &'a [u8], depth_max: u32) -> Result<Value<'a>, InvalidJson> {
        let text = std::str::from_utf8(text).map_err(|_| InvalidJson::NotUtf8)?;
        let mut reader = Reader { text, at: 0 };
        let value = reader.value(depth_max)?;
        reader.skip_space();
        match reader.peek() {
            None => Ok(value),
            Some(_) => Err(InvalidJson::Syntax { at: reader.at }),
        }
    }

    /// Finds an object's field.
    pub fn field(&self, key: &str) -> Option<&Value<'a>> {
        match self {
            Value::Object(fields) => fields
                .iter()
                .find(|(name, _)| name == key)
                .map(|(_, value)| value),
            _ => None,
        }
    }

    pub fn as_str(&self) -> Option<&str> {
        match self {
            Value::String(text) => Some(text),
            _ => None,
        }
    }

    pub fn as_array(&self) -> Option<&[Value<'a>]> {
        match self {
            Value::Array(items) => Some(items),
            _ => None,
        }
    }
}

/// Says why a text is not acceptable JSON; the caller fixes the request.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum InvalidJson {
    #[error("the text is not UTF-8")]
    NotUtf8,
    #[error("the text is not JSON at byte {at}")]
    Syntax { at: usize },
    #[error("the text nests too deep")]
    TooDeep,
    #[error("an object has the same key twice")]
    DuplicateKey,
    #[error("a string has half of a surrogate pair")]
    LoneSurrogate,
    #[error("an integer has too many digits")]
    LongInteger,
}

/// Walks over the text; every step looks before it goes.
struct Reader<'a> {
    text: &'a str,
    at: usize,
}

impl<'a> Reader<'a> {
    fn value(&mut self, depth_left: u32) -> Result<Value<'a>, InvalidJson> {
        self.skip_space();
        match self.peek() {
            Some(b'{') => self.object(depth_left),
            Some(b'[') => self.array(depth_left),
            Some(b'"') => self.string().map(Value::String),
            Some(b'-' | b'0'..=b'9') => self.number().map(Value::Number),
            _ if self.take("null") => Ok(Value::Null),
            _ if self.take("true") => Ok(Value::Bool(true)),
            _ if self.take("false") => Ok(Value::Bool(false)),
            _ => Err(self.syntax()),
        }
    }

    fn object(&mut self, depth_left: u32) -> Result<Value<'a>, InvalidJson> {
        let mut fields = Vec::new();
        self.expect("{")?;
        self.skip_space();
        if !self.take("}") {
            let inner = depth_left.checked_sub(1).ok_or(InvalidJson::TooDeep)?;
            loop {
                self.skip_space();
                let key = self.string()?;
                self.skip_space();
                self.expect(":")?;
                fields.push((key, self.value(inner)?));
                self.skip_space();
                if self.take("}") {
                    break;
                }
                self.expect(",")?;
            }
        }
        fields.sort_by(|(left, _), (right, _)| left.cmp(right));
        let duplicate = fields
            .iter()
            .zip(fields.iter().skip(1))
            .any(|((left, _), (right, _))| left == right);
        if duplicate {
            Err(InvalidJson::DuplicateKey)
        } else {
            Ok(Value::Object(fields))
        }
    }

    fn array(&mut self, depth_left: u32) -> Result<Value<'a>, InvalidJson> {
        let mut items = Vec::new();
        self.expect("[")?;
        self.skip_space();
        if !self.take("]") {
            let inner = depth_left.checked_sub(1).ok_or(InvalidJson::TooDeep)?;
            loop {
                items.push(self.value(inner)?);
                self.skip_space();
                if self.take("]") {
                    break;
                }
                self.expect(",")?;
            }
        }
        Ok(Value::Array(items))
    }

    /// Reads a string; borrows it where it has no escape.
    fn string(&mut self) -> Result<Cow<'a, str>, InvalidJson> {
        self.expect("\"")?;
        let mut read = Cow::Borrowed(self.plain());
        loop {
            match self.peek() {
                Some(b'"') => {
                    self.at += 1;
                    return Ok(read);
                }
                Some(b'\\') => {
                    self.at += 1;
                    let escaped = self.escape()?;
                    let owned = read.to_mut();
                    owned.push(escaped);
                    owned.push_str(self.plain());
                }
                _ => return Err(self.syntax()),
            }
        }
    }

    /// Takes characters up to a quote, a backslash or a control character.
    fn plain(&mut self) -> &'a str {
        let rest = self.rest();
        let length = rest
            .find(|c| c == '"' || c == '\\' || c < ' ')
            .unwrap_or(rest.len());
        self.at += length;
        rest.get(..length).unwrap_or_default()
    }

    fn escape(&mut self) -> Result<char, InvalidJson> {
        let escaped = match self.peek() {
            Some(b'"') => '"',
            Some(b'\\') => '\\',
            Some(b'/') => '/',
            Some(b'b') => '\u{8}',
            Some(b'f') => '\u{c}',
            Some(b'n') => '\n',
            Some(b'r') => '\r',
            Some(b't') => '\t',
            Some(b'u') => return self.unicode_escape(),
            _ => return Err(self.syntax()),
        };
        self.at += 1;
        Ok(escaped)
    }

    /// Reads `uXXXX`, and the other half where it is half of a pair.
    fn unicode_escape(&mut self) -> Result<char, InvalidJson> {
        let mut units = vec![self.code_unit()?];
        if units.first().is_some_and(|unit| (0xD800..0xDC00).contains(unit)) && self.take("\\") {
            if self.peek() != Some(b'u') {
                return Err(InvalidJson::LoneSurrogate);
            }
            units.push(self.code_unit()?);
        }
        let mut characters = char::decode_utf16(units);
        match (characters.next(), characters.next()) {
            (Some(Ok(character)), None) => Ok(character),
            _ => Err(InvalidJson::LoneSurrogate),
        }
    }

    fn code_unit(&mut self) -> Result<u16, InvalidJson> {
        self.expect("u")?;
        let digits = self
            .rest()
            .get(..4)
            .filter(|digits| digits.bytes().all(|b| b.is_ascii_hexdigit()));
        let unit = digits
            .and_then(|digits| u16::from_str_radix(digits, 16).ok())
            .ok_or(self.syntax())?;
        self.at += 4;
        Ok(unit)
    }

    fn number(&mut self) -> Result<&'a str, InvalidJson> {
        let start = self.at;
        let rest = self.rest();
        let _negative = self.take("-");
        let digits_from = self.at;
        if !self.take("0") {
            self.digits()?;
        }
        let integer_to = self.at;
        if self.take(".") {
            self.digits()?;
        }
        if self.take("e") || self.take("E") {
            let _signed = self.take("+") || self.take("-");
            self.digits()?;
        }
        if self.at == integer_to && integer_to - digits_from > INTEGER_DIGITS_MAX {
            return Err(InvalidJson::LongInteger);
        }
        rest.get(..self.at - start).ok_or(self.syntax())
    }

    fn digits(&mut self) -> Result<(), InvalidJson> {
        let count = self.rest().bytes().take_while(u8::is_ascii_digit).count();
        self.at += count;
        if count == 0 { Err(self.syntax()) } else { Ok(()) }
    }

    fn skip_space(&mut self) {
        let spaces = self
            .rest()
            .bytes()
            .take_while(|b| matches!(b, b' ' | b'\t' | b'\n' | b'\r'));
        self.at += spaces.count();
    }

    fn expect(&mut self, token: &str) -> Result<(), InvalidJson> {
        if self.take(token) {
            Ok(())
        } else {
            Err(self.syntax())
        }
    }

    fn take(&mut self, token: &str) -> bool {
        let found = self.rest().starts_with(token);
        if found {
            self.at += token.len();
        }
        found
    }

    fn peek(&self) -> Option<u8> {
        self.rest().bytes().next()
    }

    fn rest(&self) -> &'a str {
        self.text.get(self.at..).unwrap_or_default()
    }

    fn syntax(&self) -> InvalidJson {
        InvalidJson::Syntax { at: self.at }
    }
}
