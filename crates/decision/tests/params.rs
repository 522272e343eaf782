//! Canonical form, digests and opaque context of arguments as the edge reads them.

use decision::params::{ParamFacts, canonical_params, inspect};

#[test]
fn numbers_are_written_the_reference_way() {
    let rows = [
        ("0", "0"),
        ("-0", "0"),
        ("-0.0", "-0.0"),
        ("0.0", "0.0"),
        ("1", "1"),
        ("1.0", "1.0"),
        ("10.50", "10.5"),
        ("1e5", "100000.0"),
        ("1E5", "100000.0"),
        ("0.0001", "0.0001"),
        ("0.00001", "1e-05"),
        ("0.000015", "1.5e-05"),
        ("1e-7", "1e-07"),
        ("-1e-10", "-1e-10"),
        ("1e15", "1000000000000000.0"),
        ("123456789012345680.0", "1.2345678901234568e+17"),
        ("9999999999999998.0", "9999999999999998.0"),
        ("1e16", "1e+16"),
        ("1e22", "1e+22"),
        ("1e100", "1e+100"),
        ("5e-324", "5e-324"),
        ("1e-400", "0.0"),
        ("1.7976931348623157e308", "1.7976931348623157e+308"),
        ("0.1", "0.1"),
        ("0.30000000000000004", "0.30000000000000004"),
        ("0.1000000000000000055511151231257827", "0.1"),
        ("9007199254740993", "9007199254740993"),
        ("9007199254740993.0", "9007199254740992.0"),
        ("123456789012345678901234567890", "123456789012345678901234567890"),
        ("-18446744073709551616", "-18446744073709551616"),
    ];
    for (written, canonical) in rows {
        let params = format!(r#"{{"x":{written}}}"#);
        assert_eq!(
            canonical_params(params.as_bytes()),
            Ok(format!(r#"{{"x":{canonical}}}"#)),
            "{written}"
        );
    }
}

#[test]
fn keys_are_sorted_by_code_point_and_strings_escaped_no_more_than_json_asks() {
    let rows = [
        (r#"{ "b" : 1 , "a" : [ ] }"#, r#"{"a":[],"b":1}"#),
        (
            r#"{"é":1,"z":2,"Z":3,"😀":4,"\uffee":5}"#,
            r#"{"Z":3,"z":2,"é":1,"￮":5,"😀":4}"#,
        ),
        (r#"{"x":"\u00e9\ud83d\ude00\/"}"#, r#"{"x":"é😀/"}"#),
        (
            r#"{"x":"\"\\\n\r\t\b\f\u0001\u001f\u007f"}"#,
            "{\"x\":\"\\\"\\\\\\n\\r\\t\\b\\f\\u0001\\u001f\u{7f}\"}",
        ),
        (
            r#"{"":{"":null},"t":true,"f":false}"#,
            r#"{"":{"":null},"f":false,"t":true}"#,
        ),
        ("\t{\r\n}\n", "{}"),
    ];
    for (written, canonical) in rows {
        assert_eq!(
            canonical_params(written.as_bytes()).as_deref(),
            Ok(canonical),
            "{written}"
        );
    }
}

#[test]
fn what_is_no_canonical_object_is_malformed() {
    let nested = |levels: usize| format!("{}{}", r#"{"a":"#.repeat(levels), "{}") + &"}".repeat(levels);
    let long = |digits: usize| format!(r#"{{"x":-{}}}"#, "9".repeat(digits));
    let rows: Vec<(Vec<u8>, bool)> = vec![
        (b"{}".to_vec(), false),
        (b"".to_vec(), true),
        (b"null".to_vec(), true),
        (b"[]".to_vec(), true),
        (b"\"a\"".to_vec(), true),
        (b"0".to_vec(), true),
        (b"{} {}".to_vec(), true),
        (b"{\"x\":1,}".to_vec(), true),
        (b"{\"x\":[1,]}".to_vec(), true),
        (b"{x:1}".to_vec(), true),
        (b"{1:1}".to_vec(), true),
        (b"{\"x\":NaN}".to_vec(), true),
        (b"{\"x\":Infinity}".to_vec(), true),
        (b"{\"x\":1e999}".to_vec(), true),
        (b"{\"x\":-1e999}".to_vec(), true),
        (b"{\"x\":01}".to_vec(), true),
        (b"{\"x\":.5}".to_vec(), true),
        (b"{\"x\":5.}".to_vec(), true),
        (b"{\"x\":+1}".to_vec(), true),
        (b"{\"x\":1e}".to_vec(), true),
        (b"{\"x\":0x1}".to_vec(), true),
        (b"{\"x\":'a'}".to_vec(), true),
        (b"{\"x\":\"a\nb\"}".to_vec(), true),
        (b"{\"x\":\"\\x\"}".to_vec(), true),
        (b"{\"x\":\"\\u12\"}".to_vec(), true),
        (b"{\"x\":\"\\u+123\"}".to_vec(), true),
        (b"{\"x\":\"unclosed}".to_vec(), true),
        (b"\xef\xbb\xbf{}".to_vec(), true),
        (b"{\"x\":\"\xff\"}".to_vec(), true),
        (b"{\"x\":\"\xed\xa0\x80\"}".to_vec(), true),
        // Half of a surrogate pair, alone, reversed, or followed by something else.
        (br#"{"x":"\ud800"}"#.to_vec(), true),
        (br#"{"x":"\udc00"}"#.to_vec(), true),
        (br#"{"x":"\udc00\ud800"}"#.to_vec(), true),
        (br#"{"x":"\ud800\n"}"#.to_vec(), true),
        (br#"{"x":"\ud800\u0041"}"#.to_vec(), true),
        (br#"{"x":"\ud83d\ude00"}"#.to_vec(), false),
        // The same key twice, also when it is written differently, at any depth.
        (br#"{"x":1,"x":1}"#.to_vec(), true),
        (br#"{"x":1,"y":2,"\u0078":1}"#.to_vec(), true),
        (br#"{"a":[{"x":1,"x":2}]}"#.to_vec(), true),
        (br#"{"a":{"x":1},"x":2}"#.to_vec(), false),
        // 64 levels below the object pass, 65 do not, and a million do no harm.
        (nested(64).into_bytes(), false),
        (nested(65).into_bytes(), true),
        (b"[".repeat(1_000_000), true),
        // Integers as long as the reference takes them.
        (long(4300).into_bytes(), false),
        (long(4301).into_bytes(), true),
        // The marker belongs to the fixture format: at the edge it is an argument like any other.
        (br#"{"__noncanonical__":true}"#.to_vec(), false),
    ];
    for (params, malformed) in rows {
        let facts = inspect(&params);
        let shown = String::from_utf8_lossy(&params)
            .chars()
            .take(60)
            .collect::<String>();
        assert_eq!(facts.malformed, malformed, "{shown}");
        assert_eq!(facts.digest.is_none(), malformed, "{shown}");
        if malformed {
            assert_eq!(
                facts,
                ParamFacts {
                    digest: None,
                    malformed: true,
                    opaque: false
                },
                "{shown}"
            );
        }
    }
}

#[test]
fn context_that_cannot_be_judged_is_found_at_any_depth() {
    let rows = [
        (r#"{"ctx":"opaque"}"#, true),
        (r#"{"context":"unknown"}"#, true),
        (r#"{"opaque":"unevaluable"}"#, true),
        (r#"{"raw_context":"untestable"}"#, true),
        (r#"{"blob":"opaque"}"#, true),
        (r#"{" Context\t":"  UNKNOWN "}"#, true),
        (r#"{"CTX":"Opaque"}"#, true),
        // Letters that fold into the words' own.
        (r#"{"ctx":"unteſtable"}"#, true),
        (r#"{"ctx":"unteﬆable"}"#, true),
        (r#"{"ctx":"un\u212Anown"}"#, true),
        (r#"{"ctx":"\u001fopaque\u001c"}"#, true),
        (r#"{"a":{"b":{"ctx":"opaque"}}}"#, true),
        (r#"{"a":[{"ctx":"opaque"}]}"#, true),
        (r#"{"a":[[[{"ctx":"opaque"}]]]}"#, true),
        (r#"{"ctx":["opaque"]}"#, true),
        (r#"{"ctx":["fine",["opaque"]]}"#, true),
        (r#"{"ctx":{"ctx":"opaque"}}"#, true),
        // One half of the rule alone is not enough.
        (r#"{"context":"user asked about pricing"}"#, false),
        (r#"{"state":"opaque"}"#, false),
        (r#"{"ctx":"opaque glass"}"#, false),
        (r#"{"my_ctx":"opaque"}"#, false),
        (r#"{"ctx":true,"blob":null,"context":7}"#, false),
        (r#"{"ctx":{"paint":"opaque"}}"#, false),
        (r#"{"ctx":[{"paint":"opaque"}]}"#, false),
        (r#"{}"#, false),
    ];
    for (params, opaque) in rows {
        assert_eq!(inspect(params.as_bytes()).opaque, opaque, "{params}");
    }
}

#[test]
fn digest_is_the_sha256_of_the_canonical_form_whatever_the_spelling() {
    let digest = |params: &str| inspect(params.as_bytes()).digest.map(|digest| digest.to_string());
    let empty = "44136fa355b3678a1146ad16f7e8649e94fb4fc21fe77e8310c060f61caaff8a";
    let transfer = "ceb467c64a13639fdf30bfd629018fc427f115c80019eb926ddc90fa978222f3";
    assert_eq!(digest("{ }").as_deref(), Some(empty));
    assert_eq!(
        digest(r#"{"amount":100,"to":"acct_1"}"#).as_deref(),
        Some(transfer)
    );
    assert_eq!(
        digest(r#"{ "to" : "\u0061cct_1", "amount" : 100 }"#).as_deref(),
        Some(transfer)
    );
    assert_ne!(
        digest(r#"{"amount":100.0,"to":"acct_1"}"#).as_deref(),
        Some(transfer)
    );
}
