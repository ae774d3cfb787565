//! The XML of a body, looked through as its bytes pass: what `s3s` would pass over or misread is refused, and what
//! would become too much in memory.
//!
//! `s3s` drops CDATA sections, so that a prefix in one was none, and so it does text and attributes where elements
//! belong: a filter that held its prefix without the element was one of everything. It reads of a number the digits
//! that it begins with, so that 1,000 days were one, and skips what stands beside the rules of a lifecycle, or the
//! parts or objects that are named, so that one whose name was written small was none. What no document of S3 has,
//! and what isn't a number in full, is refused here.
//!
//! What is taken has its tags, quotes and comments where `s3s` has them: of what isn't XML, where that could differ,
//! nothing is taken.

use super::refusal::Refusal;

/// The most tags, of the beginning and of the end: 10,000 parts with every checksum that is known have 160,000.
const TAGS_MAX: usize = 200_000;

/// The elements whose text is a number, of those that are read.
const NUMBERS: [&[u8]; 6] = [
    b"Days",
    b"DaysAfterInitiation",
    b"ObjectSizeGreaterThan",
    b"ObjectSizeLessThan",
    b"PartNumber",
    b"Size",
];

/// The elements of which a list is made: each has far more bytes in memory than it may have in the document.
const LISTED: [&[u8]; 6] =
    [b"NoncurrentVersionTransition", b"Object", b"Part", b"Rule", b"Tag", b"Transition"];
/// The most of each, but of parts.
const LISTED_MAX: usize = 1000;
const PARTS_MAX: usize = 10_000;

/// The elements that mean everything when they are empty: what they have is in elements within.
const FILTERS: [&[u8]; 2] = [b"And", b"Filter"];

/// What is looked through has one of these around it, and in it nothing but these.
const ROOTS: [(&[u8], &[&[u8]]); 4] = [
    (b"CompleteMultipartUpload", &[b"Part"]),
    (b"CreateBucketConfiguration", &[b"LocationConstraint"]),
    (b"Delete", &[b"Object", b"Quiet"]),
    (b"LifecycleConfiguration", &[b"Rule"]),
];

/// More bytes than any of these names has, and than any number.
const HELD_BYTES_MAX: usize = 32;

const TOO_MANY: Refusal =
    Refusal::bad_request("MalformedXML", "The XML has more elements than any request needs.");
const TOO_LONG: Refusal = Refusal::bad_request(
    "MalformedXML",
    "The XML has more than 10,000 parts, or 1,000 objects, rules or other elements of a list.",
);
const UNREAD: Refusal = Refusal::bad_request(
    "MalformedXML",
    "The XML may have no CDATA sections, document types and processing instructions.",
);
const UNKNOWN: Refusal = Refusal::bad_request(
    "MalformedXML",
    "The XML has something else where its parts, objects or rules belong, or a location.",
);
const NO_TAG: Refusal =
    Refusal::bad_request("MalformedXML", "The XML has a tag with something in it that no tag has.");
const NO_TEXT: Refusal =
    Refusal::bad_request("MalformedXML", "The XML has something else where only elements belong.");
const NO_NUMBER: Refusal =
    Refusal::bad_request("MalformedXML", "The XML has something else where a number belongs.");

/// What of a document has passed.
#[derive(Default)]
pub(crate) struct Markup {
    tags: usize,
    listed: [usize; LISTED.len()],
    /// What the root may have in it.
    items: &'static [&'static [u8]],
    /// In the root, and in none of those.
    is_beside: bool,
    /// The last tag begins one of those.
    is_item: bool,
    at: At,
    behind: Behind,
    /// The last byte.
    last: u8,
    /// The name of a tag, or the text of a number, as far as it has come.
    held: Vec<u8>,
}

/// Where the next byte is.
#[derive(Default, Clone, Copy)]
enum At {
    /// Behind a tag.
    #[default]
    Text,
    Name,
    /// In the declaration, behind its `<?`.
    Declaration,
    /// Behind `<!`.
    Mark,
    /// Behind `<!-`.
    Dash,
    /// In a comment, behind as many of the dashes that end it.
    Comment(u8),
    /// In a tag, behind its name.
    Tag,
    /// In a tag, behind this quote, which the next one like it ends.
    Quoted(u8),
    Number,
    /// Behind the `<` that ends a number.
    End,
}

/// What may stand behind the name of the last tag, before the next.
#[derive(Default, Clone, Copy, PartialEq)]
enum Behind {
    #[default]
    Text,
    Number,
    Elements,
}

impl Markup {
    pub(crate) fn take(&mut self, bytes: &[u8]) -> Result<(), Refusal> {
        bytes.iter().try_for_each(|&byte| self.take_one(byte))
    }

    fn take_one(&mut self, byte: u8) -> Result<(), Refusal> {
        self.at = match (self.at, byte) {
            (At::Declaration, b'>') if self.last == b'?' => At::Text,
            (At::Mark, b'-') => At::Dash,
            (At::Dash, b'-') => At::Comment(0),
            (At::Mark | At::Dash, _) => return Err(UNREAD),
            (At::Comment(dashes), b'-') => At::Comment((dashes + 1).min(2)),
            (At::Comment(2), b'>') => At::Text,
            (At::Comment(_), _) => At::Comment(0),
            (At::Quoted(quote), _) if byte == quote => At::Tag,
            (At::Name | At::Tag | At::Quoted(_), b'<') => return Err(NO_TAG),
            (at @ (At::Declaration | At::Quoted(_)), _) => at,
            // What ends an element is named with its slash.
            (At::Name | At::End, b'/') if self.held.is_empty() => {
                self.held.push(byte);
                At::Name
            }
            (At::End, _) => return Err(NO_NUMBER),
            (at, b'<') => self.begin(at)?,
            (At::Name, b'!') if self.held.is_empty() => At::Mark,
            // A declaration stands before all else.
            (At::Name, b'?') if self.held.is_empty() && self.tags > 1 => return Err(UNREAD),
            (At::Name, b'?') if self.held.is_empty() => At::Declaration,
            (At::Name, b'"' | b'\'') => return Err(NO_TAG),
            (At::Name, b'>' | b'/' | b' ' | b'\t' | b'\r' | b'\n') => {
                self.take_name()?;
                self.held.clear();
                self.take_of_tag(byte)?
            }
            (At::Name, _) => {
                // Of a longer name the beginning is none of those that are known.
                if self.held.len() < HELD_BYTES_MAX {
                    self.held.push(byte);
                }
                At::Name
            }
            (At::Number, _) if self.held.len() == HELD_BYTES_MAX => return Err(NO_NUMBER),
            (At::Number, _) => {
                self.held.push(byte);
                At::Number
            }
            // What is named with it isn't what has the name before it.
            (At::Tag, _) if self.last == b'/' && byte != b'>' => return Err(NO_TAG),
            (At::Tag, _) => self.take_of_tag(byte)?,
            (At::Text, _) => {
                self.check_text(byte)?;
                At::Text
            }
        };
        self.last = byte;
        Ok(())
    }

    /// Takes a byte of a tag behind its name.
    fn take_of_tag(&mut self, byte: u8) -> Result<At, Refusal> {
        match byte {
            b'>' if self.behind == Behind::Number => return Ok(At::Number),
            b'>' => {
                // It ends what it began.
                if self.last == b'/' {
                    self.behind = Behind::Elements;
                    self.is_beside |= self.is_item;
                }
                return Ok(At::Text);
            }
            b'/' => {}
            _ => self.check_text(byte)?,
        }
        Ok(if matches!(byte, b'"' | b'\'') { At::Quoted(byte) } else { At::Tag })
    }

    /// Refuses what stands where only elements belong.
    fn check_text(&self, byte: u8) -> Result<(), Refusal> {
        let is_wrong = self.behind == Behind::Elements && !byte.is_ascii_whitespace();
        if is_wrong { Err(NO_TEXT) } else { Ok(()) }
    }

    /// Takes the name of a tag, of which as much is held as is of interest.
    fn take_name(&mut self) -> Result<(), Refusal> {
        let name = &*self.held;
        if let Some(at) = LISTED.iter().position(|listed| *listed == name) {
            self.listed[at] += 1;
            let most = if name == b"Part" { PARTS_MAX } else { LISTED_MAX };
            if self.listed[at] > most {
                return Err(TOO_LONG);
            }
        }
        self.behind = if NUMBERS.contains(&name) {
            Behind::Number
        } else if name.starts_with(b"/") || FILTERS.contains(&name) {
            Behind::Elements
        } else {
            Behind::Text
        };
        self.is_item = self.items.contains(&name);
        if let Some((_, items)) = ROOTS.iter().find(|(root, _)| *root == name) {
            (self.items, self.is_beside) = (items, true);
        } else if let Some(ended) = name.strip_prefix(b"/") {
            self.is_beside |= self.items.contains(&ended);
        } else if self.is_item {
            self.is_beside = false;
        } else if self.is_beside {
            return Err(UNKNOWN);
        }
        Ok(())
    }

    /// Begins a tag, which ends a number.
    fn begin(&mut self, at: At) -> Result<At, Refusal> {
        self.tags += 1;
        if self.tags > TAGS_MAX {
            return Err(TOO_MANY);
        }
        let held = std::mem::take(&mut self.held);
        if !matches!(at, At::Number) {
            return Ok(At::Name);
        }
        let number = std::str::from_utf8(held.trim_ascii_end()).ok();
        let is_number = number.is_some_and(|number| number.parse::<i64>().is_ok());
        if is_number { Ok(At::End) } else { Err(NO_NUMBER) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// What is said of a document, in whatever frames it comes.
    fn look(document: &str) -> Result<(), Refusal> {
        let look = |frame_bytes: usize| {
            let mut markup = Markup::default();
            document.as_bytes().chunks(frame_bytes).try_for_each(|frame| markup.take(frame))
        };
        let looked = look(document.len().max(1));
        (1..10).for_each(|frame_bytes| assert_eq!(look(frame_bytes), looked, "{document}"));
        looked
    }

    #[test]
    fn a_lifecycle_has_nothing_beside_its_rules() {
        let whole = "<?xml version=\"1.0\"?><LifecycleConfiguration xmlns=\"http://x/\"><!-- a --><Rule>\
                     <ID>a</ID><Filter><Prefix>logs/</Prefix></Filter><Status>Enabled</Status>\
                     <AbortIncompleteMultipartUpload><DaysAfterInitiation>3</DaysAfterInitiation>\
                     </AbortIncompleteMultipartUpload><Expiration><Days>1</Days></Expiration></Rule>\
                     </LifecycleConfiguration>";
        assert_eq!(look(whole), Ok(()));
        let longest = format!("<{}>", "P".repeat(HELD_BYTES_MAX + 1));
        for other in ["<rule>", "<Prefix/>", "<s3:Rule>", "<Rule2 a=\"b\">", "< Rule>", &longest] {
            for place in ["<Rule>", "</LifecycleConfiguration>"] {
                let document = whole.replace(place, &format!("{other}{place}"));
                assert_eq!(look(&document), Err(UNKNOWN), "{document}");
            }
        }
        let two = whole.replace("</Rule>", "</Rule >\n<!-- b --><Rule a=\"b\"><ID>b</ID></Rule>");
        assert_eq!(look(&two), Ok(()));
    }

    /// A part that was named wrong was left out of the object, and an object of the delete; and a bucket was made
    /// without its tags.
    #[test]
    fn nothing_stands_beside_what_is_named() {
        let parts = "<CompleteMultipartUpload><Part><PartNumber>1</PartNumber><ETag>a</ETag></Part>\
                     <Part><ETag>b</ETag><PartNumber>2</PartNumber></Part></CompleteMultipartUpload>";
        let objects = "<Delete xmlns=\"http://x/\"><Quiet>true</Quiet><!-- <object/> --><Object><Key>a</Key>\
                       <Size>1</Size></Object>\n<Object><Key>b</Key></Object></Delete>";
        let bucket = "<CreateBucketConfiguration><LocationConstraint>eu</LocationConstraint>\
                      </CreateBucketConfiguration>";
        for (whole, item) in [
            (parts, "Part"),
            (objects, "Object"),
            (objects, "Quiet"),
            (bucket, "LocationConstraint"),
        ] {
            assert_eq!(look(whole), Ok(()));
            for other in [item.to_lowercase(), format!("s3:{item}"), format!("{item}s")] {
                let document = whole.replace(item, &other);
                assert_eq!(look(&document), Err(UNKNOWN), "{document}");
                let end = format!("</{item}>");
                let document = whole.replace(&end, &format!("{end}<{other}></{other}>"));
                assert_eq!(look(&document), Err(UNKNOWN), "{document}");
            }
        }
    }

    #[test]
    fn what_the_parser_passes_over_is_refused() {
        for document in [
            "<Delete><Object><Key>a<![CDATA[b]]></Key></Object></Delete>",
            "<Prefix><![CDATA[logs/]]></Prefix>",
            "<!DOCTYPE Delete><Delete/>",
            "<Key>a<?b?></Key>",
            "<?xml version=\"1.0\"?><?b?><Delete/>",
        ] {
            assert_eq!(look(document), Err(UNREAD), "{document}");
        }
        for document in [
            "",
            "<?xml version=\"1.0\" encoding=\"UTF-8\"?>\n<Delete xmlns=\"http://a/b?c!d\">e!?</Delete>",
            "<!-- a -- <b> --><Key>c<!-- d --></Key>",
            "<Key>[CDATA[</Key>",
        ] {
            assert_eq!(look(document), Ok(()), "{document}");
        }
    }

    /// A filter with its prefix as text, or as an attribute, was one without: the whole bucket expired.
    #[test]
    fn where_elements_belong_nothing_else_stands() {
        for document in [
            "<Filter>tmp/</Filter>",
            "<Filter Prefix=\"tmp/\"/>",
            "<Filter\n>&#32;</Filter>",
            "<Filter><!-- a -->tmp/</Filter>",
            "<Filter><!--a-->tmp/</Filter>",
            "<Filter>--></Filter>",
            "<Filter><And>tmp/</And></Filter>",
            "<Filter><ObjectSizeLessThan>5</ObjectSizeLessThan>tmp/</Filter>",
            "<Filter><Prefix/>tmp/</Filter>",
            "<Filter><Prefix a=\"b\" />tmp/</Filter>",
            "<Filter/>tmp/",
            "<Delete><Object><Key>a</Key></Object>b</Delete>",
            "</Delete b>",
        ] {
            assert_eq!(look(document), Err(NO_TEXT), "{document}");
        }
        let long = format!("<{0}>a</{0}>\n", "P".repeat(2 * HELD_BYTES_MAX));
        for document in [
            "<Filter/>",
            "<Filter />\r\n<Status>Enabled</Status>",
            "<Filter >\n\t<!-- <Filter>tmp/</Filter> a --><Prefix>a/&gt;</Prefix >\n</Filter>\n",
            "<!-- <Rule><Days>1,000</Days></Rule> a --><Rule><!-- a/> --></Rule><!---->",
            "<Prefix a=\"/\">tmp/</Prefix>",
            "<Key>a/>b</Key>",
            "<Key>a<!-- <b></b> -->c</Key>",
            "<Prefixes>a</Prefixes>",
            &long,
        ] {
            assert_eq!(look(document), Ok(()), "{document}");
        }
    }

    /// A comment in an attribute ended all checks, and a tag in one counted as a tag: rules, parts and objects behind
    /// it were misread or passed over as if nothing looked.
    #[test]
    fn tags_are_those_of_the_parser() {
        for document in [
            "<Rule a=\"<!--\"><Filter>tmp/</Filter></Rule>",
            "<Rule a='<!--'><Days>1,000</Days></Rule>",
            "<Delete a=\"><Object>\"><object><Key>k</Key></object></Delete>",
            "<Delete><x<!-- ></x<!--><object/></Delete>",
            "<Delete><<!-- /><object/></Delete>",
            "<<![CDATA[b]]>",
            "<Delete><Object\">\"/></Delete>",
            "<Delete><Object/s><Key>k</Key></Object/s></Delete>",
            "<Delete a=b/c></Delete>",
        ] {
            assert_eq!(look(document), Err(NO_TAG), "{document}");
        }
        for document in [
            "<Filter><!--><Prefix><!-- -->tmp/</Filter>",
            "<Filter><!---><Prefix><!-- -->tmp/</Filter>",
        ] {
            assert_eq!(look(document), Err(NO_TEXT), "{document}");
        }
        for document in ["<!-x-->", "<!->", "<Key><!</Key>"] {
            assert_eq!(look(document), Err(UNREAD), "{document}");
        }
        for document in [
            "<Delete a=\">\"><object/></Delete>",
            "<?xml><Delete><!-- ?><Delete><object/></Delete>",
            "<Delete><Object/><object/></Delete>",
        ] {
            assert_eq!(look(document), Err(UNKNOWN), "{document}");
        }
        for document in [
            "<?xml a='<b>' ?><Delete/>",
            "<Rule a=\"b>c\"><Days>1</Days></Rule>",
            "<Rule a='\"' b=\"'/\" ><!--'--><!-- -> -- > --- --></Rule>",
        ] {
            assert_eq!(look(document), Ok(()), "{document}");
        }
    }

    /// However a document is broken, what stands beside its objects is seen where the parser would pass it over.
    #[test]
    fn nothing_that_is_passed_over_is_taken() {
        use s3s::xml::{DeResult, Deserializer};

        const PIECES: [&str; 20] = [
            "<",
            ">",
            "/",
            "\"",
            "'",
            "-",
            "--",
            "<!",
            "<!--",
            "-->",
            "?",
            "<?",
            "?>",
            " ",
            "a=",
            "x",
            "Object",
            "<Object",
            "<Object>",
            "</Object>",
        ];
        fn skip(xml: &mut Deserializer<'_>) -> DeResult {
            xml.for_each_element(|xml, _| skip(xml))
        }
        let is_read = |document: &str| {
            let (mut xml, mut is_beside) = (Deserializer::new(document.as_bytes()), false);
            let read = xml.named_element("Delete", |xml| {
                xml.for_each_element(|xml, name| {
                    is_beside |= name != b"Object";
                    skip(xml)
                })
            });
            is_beside && read.and_then(|()| xml.expect_eof()).is_ok()
        };
        let whole = "<?xml a='b'?><Delete a=\"b\"><!-- c --><Object><Key>k</Key></Object><object>k</object>\
                     <Object/></Delete>";
        assert!(is_read(whole));
        let mut state = 1_u64;
        let mut below = |bound: usize| {
            state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
            (state >> 33) as usize % bound
        };
        let mut read = 0;
        for _ in 0..20_000 {
            let mut document = whole.to_owned();
            let mut at = 0;
            for _ in 0..=below(4) {
                at = if below(2) == 0 { at } else { below(document.len() + 1) };
                let piece = PIECES[below(PIECES.len())];
                document.insert_str(at, piece);
                at += piece.len();
            }
            if is_read(&document) {
                read += 1;
                let mut markup = Markup::default();
                assert!(markup.take(document.as_bytes()).is_err(), "{document}");
            }
        }
        assert!(read > 200, "{read}");
    }

    #[test]
    fn numbers_are_numbers_to_their_end() {
        for number in ["1", "-1", "+5", "0010", "9223372036854775807", "7\n  "] {
            for element in ["Days", "ObjectSizeLessThan", "PartNumber"] {
                assert_eq!(look(&format!("<{element}>{number}</{element}>")), Ok(()), "{number}");
            }
        }
        for number in [
            "1,000",
            "1 000",
            "30 days",
            "1.5",
            "1e3",
            "0x10",
            "",
            " 1",
            "1<!-- -->,000",
            "&#49;",
            "99999999999999999999",
            "1                                 ",
        ] {
            for tag in ["Days", "Days ", "Days\n", "Days a=\"b\""] {
                let document = format!("<a><{tag}>{number}</Days></a>");
                assert_eq!(look(&document), Err(NO_NUMBER), "{document}");
            }
            // Of text, and of what isn't read, a number is nobody's concern.
            assert_eq!(look(&format!("<Key>{number}</Key>")), Ok(()), "{number}");
        }
        assert_eq!(look("<Days/>"), Ok(()));
        assert_eq!(look("<Days/><Key>"), Err(NO_NUMBER));
    }

    #[test]
    fn tags_are_counted() {
        let mut markup = Markup::default();
        let checksums = "<ChecksumCRC32>AAAAAA==</ChecksumCRC32>".repeat(5);
        let part = format!("<Part><PartNumber>1</PartNumber><ETag>a</ETag>{checksums}</Part>");
        (0..10_000).for_each(|_| markup.take(part.as_bytes()).unwrap());
        let mut markup = Markup::default();
        (0..200_000).for_each(|_| markup.take(b"<ETag/>").unwrap());
        assert_eq!(markup.take(b"<ETag/>"), Err(TOO_MANY));
    }

    /// 200,000 parts of 7 bytes each became 32 MB, of which 3 were counted.
    #[test]
    fn elements_of_lists_are_counted() {
        for (element, most) in [("Part", 10_000), ("Object", 1000), ("Rule", 1000), ("Tag", 1000)] {
            for of in [format!("<{element}/>"), format!("<{element}\n></{element}>")] {
                let mut markup = Markup::default();
                (0..most).for_each(|_| markup.take(of.as_bytes()).unwrap());
                assert_eq!(markup.take(of.as_bytes()), Err(TOO_LONG), "{of}");
            }
        }
    }
}
