//! The few protobuf messages of a Perfetto trace that an export needs, encoded by hand: three wire types and no schema
//! compiler. Numbers are those of Perfetto's published schema; a test decodes what is written with that schema.

/// A message under construction.
#[derive(Debug, Default, Clone)]
pub(super) struct Message(Vec<u8>);

impl Message {
    pub(super) fn bytes(&self) -> &[u8] {
        &self.0
    }

    pub(super) fn clear(&mut self) {
        self.0.clear();
    }

    fn varint(&mut self, mut value: u64) {
        while value >= 0x80 {
            self.0.push(value as u8 | 0x80);
            value >>= 7;
        }
        self.0.push(value as u8);
    }

    /// A field of an integer type or an enumeration.
    pub(super) fn uint(&mut self, field: u32, value: u64) -> &mut Message {
        self.varint(u64::from(field) << 3);
        self.varint(value);
        self
    }

    /// A field of type `int64` or `int32`.
    pub(super) fn int(&mut self, field: u32, value: i64) -> &mut Message {
        self.uint(field, value as u64)
    }

    /// A field of type `fixed64`.
    pub(super) fn fixed64(&mut self, field: u32, value: u64) -> &mut Message {
        self.varint(u64::from(field) << 3 | 1);
        self.0.extend_from_slice(&value.to_le_bytes());
        self
    }

    /// A field of bytes or text.
    pub(super) fn text(&mut self, field: u32, value: &[u8]) -> &mut Message {
        self.varint(u64::from(field) << 3 | 2);
        self.varint(value.len() as u64);
        self.0.extend_from_slice(value);
        self
    }

    /// A field that is a message.
    pub(super) fn message(&mut self, field: u32, value: &Message) -> &mut Message {
        self.text(field, &value.0)
    }
}

/// Fields of `Trace`.
pub(super) const TRACE_PACKET: u32 = 1;

/// Fields of `TracePacket`.
pub(super) mod packet {
    pub(in super::super) const CLOCK_SNAPSHOT: u32 = 6;
    pub(in super::super) const TIMESTAMP: u32 = 8;
    pub(in super::super) const SEQUENCE_ID: u32 = 10;
    pub(in super::super) const TRACK_EVENT: u32 = 11;
    pub(in super::super) const INTERNED_DATA: u32 = 12;
    pub(in super::super) const SEQUENCE_FLAGS: u32 = 13;
    pub(in super::super) const TRACK_DESCRIPTOR: u32 = 60;
    /// Flag: numbers of strings begin anew.
    pub(in super::super) const STATE_CLEARED: u64 = 1;
    /// Flag: numbers of strings are used.
    pub(in super::super) const NEEDS_STATE: u64 = 2;
}

/// Fields of `TrackEvent`.
pub(super) mod event {
    pub(in super::super) const CATEGORY_IIDS: u32 = 3;
    pub(in super::super) const DEBUG_ANNOTATIONS: u32 = 4;
    pub(in super::super) const TYPE: u32 = 9;
    pub(in super::super) const NAME_IID: u32 = 10;
    pub(in super::super) const TRACK_UUID: u32 = 11;
    pub(in super::super) const NAME: u32 = 23;
    pub(in super::super) const FLOW_IDS: u32 = 47;
    pub(in super::super) const SLICE_BEGIN: u64 = 1;
    pub(in super::super) const SLICE_END: u64 = 2;
    pub(in super::super) const INSTANT: u64 = 3;
}

/// Fields of `InternedData`.
pub(super) mod interned {
    pub(in super::super) const CATEGORIES: u32 = 1;
    pub(in super::super) const NAMES: u32 = 2;
    pub(in super::super) const ANNOTATION_NAMES: u32 = 3;
    pub(in super::super) const ANNOTATION_TEXTS: u32 = 29;
    /// Of each entry: its number and text.
    pub(in super::super) const IID: u32 = 1;
    pub(in super::super) const TEXT: u32 = 2;
}

/// Fields of `DebugAnnotation`.
pub(super) mod annotation {
    pub(in super::super) const NAME_IID: u32 = 1;
    pub(in super::super) const UINT: u32 = 3;
    pub(in super::super) const INT: u32 = 4;
    pub(in super::super) const TEXT: u32 = 6;
    pub(in super::super) const POINTER: u32 = 7;
    pub(in super::super) const TEXT_IID: u32 = 17;
}

/// Fields of `TrackDescriptor` and `ProcessDescriptor`.
pub(super) mod track {
    pub(in super::super) const UUID: u32 = 1;
    pub(in super::super) const NAME: u32 = 2;
    pub(in super::super) const PROCESS: u32 = 3;
    pub(in super::super) const PARENT_UUID: u32 = 5;
    pub(in super::super) const PROCESS_PID: u32 = 1;
    pub(in super::super) const PROCESS_SORT_INDEX: u32 = 3;
    pub(in super::super) const PROCESS_NAME: u32 = 6;
    pub(in super::super) const PROCESS_LABELS: u32 = 8;
}

/// Fields of `ClockSnapshot` and its clocks.
pub(super) mod clock {
    pub(in super::super) const CLOCKS: u32 = 1;
    pub(in super::super) const ID: u32 = 1;
    pub(in super::super) const TIMESTAMP: u32 = 2;
    pub(in super::super) const REALTIME: u64 = 1;
    pub(in super::super) const BOOTTIME: u64 = 6;
}

#[cfg(test)]
mod tests {
    use super::Message;

    #[test]
    fn wire_types_are_those_of_protobuf() {
        let mut inner = Message::default();
        inner.int(1, -1);
        let mut message = Message::default();
        message.uint(1, 150).text(2, b"ab").fixed64(3, 1).message(4, &inner);
        let expected: &[u8] = &[
            0x08, 0x96, 0x01, 0x12, 2, b'a', b'b', 0x19, 1, 0, 0, 0, 0, 0, 0, 0, 0x22, 11, 0x08, 0xff, 0xff, 0xff,
            0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0x01,
        ];
        assert_eq!(message.bytes(), expected);
    }
}
