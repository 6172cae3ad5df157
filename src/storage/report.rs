use serde_json::{Map, Value};

use crate::storage::Error;

/// One line of an LVM report.
///
/// LVM's versions differ in how they write a value: numbers as strings or as numbers; `""`, `null` or `-1`
/// for none. The accessors take all of them, and none is never 0.
#[derive(Debug, Clone, PartialEq)]
pub struct Row(Map<String, Value>);

/// Reads what `lvs`, `vgs` or `pvs` print with `--reportformat json`; `kind` is `lv`, `vg` or `pv`.
///
/// ```
/// let json = r#"{"report": [{"lv": [{"lv_name": "datalv", "lv_size": "1073741824"}]}]}"#;
/// let rows = snaptax::storage::rows(json, "lv")?;
/// assert_eq!(rows[0].number("lv_size"), Some(1 << 30));
/// # Ok::<(), snaptax::storage::Error>(())
/// ```
///
/// # Errors
/// When it is not such a report.
pub fn rows(json: &str, kind: &str) -> Result<Vec<Row>, Error> {
    let unreadable = |problem: &str| Error::unreadable(format!("LVM's {kind} report"), problem);
    let value: Value = serde_json::from_str(json).map_err(|error| unreadable(&error.to_string()))?;
    let reports = value.get("report").and_then(Value::as_array);
    let reports = reports.ok_or_else(|| unreadable("no list named `report`"))?;
    reports
        .iter()
        .filter_map(|report| report.get(kind)?.as_array())
        .flatten()
        .map(|row| {
            row.as_object()
                .cloned()
                .map(Row)
                .ok_or_else(|| unreadable("a row is no object"))
        })
        .collect()
}

impl Row {
    /// A text; `None` when it is empty or missing.
    #[must_use]
    pub fn text(&self, field: &str) -> Option<&str> {
        self.0
            .get(field)?
            .as_str()
            .map(str::trim)
            .filter(|text| !text.is_empty())
    }

    /// A whole number, 0 or more; `None` for LVM's signs for none.
    #[must_use]
    pub fn number(&self, field: &str) -> Option<u64> {
        match self.0.get(field)? {
            Value::Number(number) => number.as_u64().or_else(|| whole(number.as_f64()?)),
            Value::String(text) => {
                let text = text.trim().trim_end_matches(['B', 'b']);
                text.parse()
                    .ok()
                    .or_else(|| whole(text.replace(',', ".").parse().ok()?))
            }
            _ => None,
        }
    }
}

fn whole(number: f64) -> Option<u64> {
    (number.fract() == 0.0 && (0.0..9.0e15).contains(&number)).then_some(number as u64)
}

/// The letter of `lv_attr` that matters here (lvs(8)); LVM's versions print 6 to 10 of them.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct LvAttr {
    /// Its state: `a` active, `I` invalid snapshot, `m` or `M` failed merge, `-` inactive, ...
    pub state: char,
}

impl LvAttr {
    /// Reads an attribute string; `None` when it is none.
    ///
    /// ```
    /// use snaptax::storage::LvAttr;
    /// assert!(LvAttr::parse("owi-aos---").is_some_and(|attr| attr.is_active()));
    /// ```
    #[must_use]
    pub fn parse(text: &str) -> Option<Self> {
        let letters: Vec<char> = text.trim().chars().collect();
        if !(6..=10).contains(&letters.len()) {
            return None;
        }
        Some(Self { state: letters[4] })
    }

    /// Whether the volume has a working device.
    #[must_use]
    pub fn is_active(&self) -> bool {
        self.state == 'a'
    }

    /// Whether the volume is a snapshot that has overflown; it has a device.
    #[must_use]
    pub fn is_lost(&self) -> bool {
        self.state == 'I'
    }
}

/// A loop device with a file behind it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct AttachedLoop {
    /// Its node, as `/dev/loop0`.
    pub device: String,
    /// The file's path when it was attached; ends in ` (deleted)` when it was.
    pub file: String,
    /// The file's inode.
    pub inode: Option<u64>,
    /// Major and minor number of the device the file lies on.
    pub file_device: Option<(u32, u32)>,
    /// Whether the file is read and written with direct I/O.
    pub direct_io: bool,
}

/// Reads what `losetup --list --json --output NAME,BACK-FILE,BACK-INO,BACK-MAJ:MIN,DIO` prints, which is
/// nothing when there is no loop device.
///
/// # Errors
/// When it is not such a list.
pub fn loop_devices(json: &str) -> Result<Vec<AttachedLoop>, Error> {
    if json.trim().is_empty() {
        return Ok(Vec::new());
    }
    let unreadable = |problem: &str| Error::unreadable("losetup's list", problem);
    let value: Value = serde_json::from_str(json).map_err(|error| unreadable(&error.to_string()))?;
    let list = value.get("loopdevices").and_then(Value::as_array);
    let list = list.ok_or_else(|| unreadable("no list named `loopdevices`"))?;
    list.iter()
        .map(|item| {
            let row = item
                .as_object()
                .cloned()
                .map(Row)
                .ok_or_else(|| unreadable("an entry is no object"))?;
            Ok(AttachedLoop {
                device: row
                    .text("name")
                    .ok_or_else(|| unreadable("a device has no name"))?
                    .to_owned(),
                file: row.text("back-file").unwrap_or_default().to_owned(),
                inode: row.number("back-ino"),
                file_device: row.text("back-maj:min").and_then(device_number),
                direct_io: row.0.get("dio") == Some(&Value::Bool(true)) || row.number("dio") == Some(1),
            })
        })
        .collect()
}

/// Reads `major:minor`.
pub(super) fn device_number(text: &str) -> Option<(u32, u32)> {
    let (major, minor) = text.trim().split_once(':')?;
    Some((major.trim().parse().ok()?, minor.trim().parse().ok()?))
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use rstest::rstest;

    fn one(value: &str) -> Row {
        let json = format!(r#"{{"report": [{{"lv": [{{"field": {value}}}]}}]}}"#);
        rows(&json, "lv").unwrap().remove(0)
    }

    #[rstest]
    #[case(r#""1073741824""#, Some(1 << 30))]
    #[case("1073741824", Some(1 << 30))]
    #[case(r#""1073741824B""#, Some(1 << 30))]
    #[case(r#""4096.00""#, Some(4096))]
    #[case(r#""4096,00""#, Some(4096))]
    #[case("4096.0", Some(4096))]
    #[case(r#""0""#, Some(0))]
    #[case(r#""""#, None)]
    #[case("null", None)]
    #[case("-1", None)]
    #[case(r#""-1""#, None)]
    #[case(r#""18.97""#, None)]
    #[case(r#""nan""#, None)]
    #[case("[]", None)]
    fn a_number_is_read_in_every_form_and_none_is_not_zero(#[case] value: &str, #[case] number: Option<u64>) {
        assert_eq!(one(value).number("field"), number);
    }

    #[rstest]
    #[case(r#"" datalv ""#, Some("datalv"))]
    #[case(r#""snaptax,snaptax.run=1-2-3""#, Some("snaptax,snaptax.run=1-2-3"))]
    #[case(r#""""#, None)]
    #[case("null", None)]
    #[case("-1", None)]
    #[case(r#"["snaptax", "snaptax.run=1-2-3"]"#, None)]
    fn a_text_is_trimmed_and_an_empty_one_is_none(#[case] value: &str, #[case] text: Option<&str>) {
        assert_eq!(one(value).text("field"), text);
    }

    #[test]
    fn several_reports_are_joined_and_the_log_is_passed_over() {
        let json = r#"{"report": [{"lv": [{"lv_name":"a"}]}, {"vg": []}, {"lv": [{"lv_name":"b"}]}],
                       "log": [{"log_seq_num":"1"}]}"#;
        let names: Vec<_> = rows(json, "lv")
            .unwrap()
            .iter()
            .filter_map(|row| row.text("lv_name").map(str::to_owned))
            .collect();
        assert_eq!(names, ["a", "b"]);
    }

    #[rstest]
    #[case("")]
    #[case("{}")]
    #[case(r#"{"report": 1}"#)]
    #[case(r#"{"report": [{"lv": [1]}]}"#)]
    #[case("  WARNING: something\n{}")]
    fn what_is_no_report_is_refused(#[case] json: &str) {
        assert!(matches!(rows(json, "lv"), Err(Error::Unreadable { .. })));
    }

    #[rstest]
    #[case("owi-ao", 'a')]
    #[case("swi-a-s-", 'a')]
    #[case("swi-I-s--", 'I')]
    #[case("Vwi---tz-k", '-')]
    #[case("-wi-ao----", 'a')]
    #[case("Swi-m-s---", 'm')]
    fn attributes_of_every_length_are_read(#[case] text: &str, #[case] state: char) {
        assert_eq!(LvAttr::parse(text), Some(LvAttr { state }));
    }

    #[rstest]
    #[case("")]
    #[case("owi-a")]
    #[case("-wi-ao-----")]
    fn other_attributes_are_refused(#[case] text: &str) {
        assert_eq!(LvAttr::parse(text), None);
    }

    #[rstest]
    #[case::strings(r#"{"name":"/dev/loop3","back-file":"/w/f","back-ino":"42","back-maj:min":"254:0","dio":"1"}"#)]
    #[case::typed(r#"{"name":"/dev/loop3","back-file":"/w/f","back-ino":42,"back-maj:min":"254:0","dio":true}"#)]
    #[case::padded(r#"{"name":"/dev/loop3","back-file":"/w/f","back-ino":42,"back-maj:min":" 254:0 ","dio":1}"#)]
    fn losetups_list_is_read_in_every_form(#[case] entry: &str) {
        let expected = AttachedLoop {
            device: "/dev/loop3".into(),
            file: "/w/f".into(),
            inode: Some(42),
            file_device: Some((254, 0)),
            direct_io: true,
        };
        assert_eq!(
            loop_devices(&format!(r#"{{"loopdevices": [{entry}]}}"#)).unwrap(),
            [expected]
        );
    }

    #[rstest]
    #[case("")]
    #[case("\n")]
    #[case("{\n   \"loopdevices\": [\n\n   ]\n}\n")]
    fn no_loop_device_is_an_empty_list(#[case] json: &str) {
        assert_eq!(loop_devices(json).unwrap(), []);
    }

    proptest! {
        #[test]
        fn no_text_makes_the_parsers_panic(text in "\\PC*") {
            let _ = (rows(&text, "lv"), loop_devices(&text), LvAttr::parse(&text), device_number(&text));
        }

        #[test]
        fn no_value_makes_the_accessors_panic(text in "[-0-9.,eEBb ]{0,24}") {
            let row = one(&Value::String(text).to_string());
            let _ = (row.text("field"), row.number("field"));
        }
    }
}
