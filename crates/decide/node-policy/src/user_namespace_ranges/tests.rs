//! What is given, taken over and refused.

use super::*;

const LENGTH: u32 = USUAL_LENGTH;

fn pool(first: u32, count: u32, length: u32) -> UserNamespacePool {
    UserNamespacePool { first, count, length }
}

fn ranges(pods: u32) -> UserNamespaceRangeAllocator {
    UserNamespaceRangeAllocator::new(pool(2 * LENGTH, pods * LENGTH, LENGTH), i64::from(pods))
        .unwrap()
}

fn file(user: u32, inside: u32, length: u32) -> String {
    let mapping = format!(r#"[{{"hostId":{user},"containerId":{inside},"length":{length}}}]"#);
    format!(r#"{{"uidMappings":{mapping},"gidMappings":{mapping}}}"#)
}

#[test]
fn a_pool_must_be_whole_ranges_without_root() {
    let whole = UserNamespacePool::whole(LENGTH);
    assert_eq!((whole.first, whole.count), (LENGTH, u32::MAX - LENGTH + 1));
    assert!(UserNamespaceRangeAllocator::new(whole, 110).is_ok());
    for (pool, pods, expected) in [
        (pool(LENGTH, LENGTH, 1000), 1, "length 1000 is not a multiple of 65536"),
        (pool(LENGTH, LENGTH, 0), 1, "length 0 is not a multiple of 65536"),
        (pool(LENGTH + 1, LENGTH, LENGTH), 1, "ID 65537 is not a multiple of 65536"),
        (pool(0, LENGTH, LENGTH), 1, "ID 0 must be greater or equal to 65536"),
        (pool(LENGTH, LENGTH + 1, LENGTH), 1, "IDs length 65537 is not a multiple of 65536"),
        (pool(LENGTH, LENGTH, LENGTH), 2, "IDs are not enough to support 2 pods"),
    ] {
        let error = UserNamespaceRangeAllocator::new(pool, pods).unwrap_err().to_string();
        assert!(error.ends_with(expected), "{error}");
    }
}

#[test]
fn the_output_of_getsubids_is_parsed() {
    let read = UserNamespacePool::parse("0: kubelet 65536 7208960\n", LENGTH);
    assert_eq!(read, Ok(pool(65_536, 7_208_960, LENGTH)));
    for bad in ["", "0: kubelet 65536", "a\nb", "0: kubelet x 1", "0: kubelet 1 99999999999"] {
        assert!(UserNamespacePool::parse(bad, LENGTH).is_err(), "{bad}");
    }
}

#[test]
fn each_pod_keeps_its_range_until_it_is_removed() {
    let mut ranges = ranges(2);
    let (one, text) = ranges.reserve("one").unwrap();
    assert_eq!(one, 2 * LENGTH);
    assert_eq!(String::from_utf8(text.clone()).unwrap(), file(one, 0, LENGTH), "as upstream");
    let (two, _) = ranges.reserve("two").unwrap();
    assert_eq!(two, 3 * LENGTH);
    let error = ranges.reserve("three").unwrap_err().to_string();
    assert_eq!(error, "could not find an empty slot to allocate a user namespace");
    assert_eq!(ranges.record("one", &text), Ok(one), "again is the same");
    ranges.retain_pods(|uid| uid != "one");
    assert_eq!(ranges.reserve("three").unwrap().0, one);
    let error = ranges.record("one", &text).unwrap_err().to_string();
    assert_eq!(error, "range picked for pod \"one\" already taken");
}

#[test]
fn earlier_allocations_are_adopted() {
    let mut ranges = ranges(4);
    assert_eq!(ranges.length(), LENGTH);
    let (middle, last) = (3 * LENGTH, 5 * LENGTH);
    assert_eq!(ranges.record("old", file(middle, 0, LENGTH).as_bytes()), Ok(middle));
    assert_eq!(ranges.record("older", file(last, 0, LENGTH).as_bytes()), Ok(last));
    assert_eq!(ranges.reserve("a").unwrap().0, 2 * LENGTH);
    assert_eq!(ranges.reserve("b").unwrap().0, 4 * LENGTH, "not the one that is taken");
}

#[test]
fn a_file_with_a_foreign_range_is_refused() {
    let one = file(2 * LENGTH, 0, LENGTH);
    for (text, expected) in [
        (String::new(), "invalid user namespace mappings file: "),
        ("{}".to_owned(), "invalid user namespace mappings file: "),
        (r#"{"uidMappings":[],"gidMappings":[]}"#.to_owned(), "one mapping of users"),
        (
            one.replace(
                "\"gidMappings\":[{\"hostId\":131072",
                "\"gidMappings\":[{\"hostId\":196608",
            ),
            "should be identical",
        ),
        (file(2 * LENGTH, 1, LENGTH), "UID 0 must be mapped"),
        (file(2 * LENGTH, 0, LENGTH - 1), "wrong user namespace length 65535"),
        (file(2 * LENGTH + 1, 0, LENGTH), "wrong user namespace offset specified 131073"),
        (file(LENGTH, 0, LENGTH), "id 65536 is out of range"),
        (file(0, 0, LENGTH), "id 0 is out of range"),
        (file(4 * LENGTH, 0, LENGTH), "id 262144 is out of range"),
    ] {
        let error = ranges(2).record("pod", text.as_bytes()).unwrap_err().to_string();
        assert!(error.contains(expected), "{text}: {error}");
    }
    let mut ranges = ranges(2);
    ranges.record("pod", one.as_bytes()).unwrap();
    let error = ranges.record("pod", file(3 * LENGTH, 0, LENGTH).as_bytes()).unwrap_err();
    assert_eq!(error.to_string(), "different user namespace range already used by pod \"pod\"");
}
