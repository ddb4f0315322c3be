//! A Parquet file of flat rows: columns are buffered for a row group and written one after the other, so that memory is
//! bounded by a row group.

use std::fs::File;
use std::path::Path;
use std::sync::Arc;

use parquet::basic::{Compression, Encoding, LogicalType, Repetition, TimeUnit, Type as Physical, ZstdLevel};
use parquet::column::writer::ColumnWriter;
use parquet::data_type::ByteArray;
use parquet::errors::ParquetError;
use parquet::file::metadata::KeyValue;
use parquet::file::properties::{WriterProperties, WriterPropertiesPtr};
use parquet::file::writer::SerializedFileWriter;
use parquet::schema::types::{ColumnPath, Type};

use crate::export::{ExportError, create};

/// Rows of a row group: what DuckDB reads at a time, and enough for dictionaries to pay.
const GROUP: usize = 122_880;
/// Bytes of text that a row group holds before it is written early: texts that many rows share count once.
const GROUP_TEXT: usize = 32 << 20;
/// Key of the note that says who wrote the file.
const WRITER: &str = "rankdiff";

/// What a column holds.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Kind {
    /// Unsigned, 32 bits.
    U32,
    /// Unsigned, 64 bits.
    U64,
    /// Signed, 64 bits.
    I64,
    /// ns since 1970, UTC.
    Time,
    /// UTF-8.
    Text,
    /// True or false.
    Bool,
}

impl Kind {
    fn schema(self, name: &str) -> Result<Type, ParquetError> {
        let (physical, logical) = match self {
            Kind::U32 => (Physical::INT32, Some(LogicalType::integer(32, false))),
            Kind::U64 => (Physical::INT64, Some(LogicalType::integer(64, false))),
            Kind::I64 => (Physical::INT64, None),
            // Readers keep ns only of times without a zone.
            Kind::Time => (Physical::INT64, Some(LogicalType::timestamp(false, TimeUnit::NANOS))),
            Kind::Text => (Physical::BYTE_ARRAY, Some(LogicalType::String)),
            Kind::Bool => (Physical::BOOLEAN, None),
        };
        Type::primitive_type_builder(name, physical)
            .with_repetition(Repetition::OPTIONAL)
            .with_logical_type(logical)
            .build()
    }
}

/// A value of a row. Numbers fit their column.
#[derive(Debug, Clone)]
pub(super) enum Cell {
    /// Not known, or there is none.
    Null,
    /// Unsigned.
    Uint(u64),
    /// Signed, or a time.
    Int(i64),
    /// Text; cheap to clone.
    Text(ByteArray),
    /// True or false.
    Bool(bool),
}

impl Cell {
    pub(super) fn uint(value: Option<impl Into<u64>>) -> Cell {
        value.map_or(Cell::Null, |value| Cell::Uint(value.into()))
    }

    pub(super) fn int(value: Option<i64>) -> Cell {
        value.map_or(Cell::Null, Cell::Int)
    }

    pub(super) fn text(value: Option<String>) -> Cell {
        value.map_or(Cell::Null, |value| Cell::Text(value.into_bytes().into()))
    }

    /// A text, empty for none.
    pub(super) fn known(value: &str) -> Cell {
        if value.is_empty() { Cell::Null } else { Cell::Text(value.as_bytes().to_vec().into()) }
    }
}

/// The values of a column in the row group that is filled, and for each row whether it has one.
#[derive(Debug)]
struct Column {
    kind: Kind,
    present: Vec<i16>,
    small: Vec<i32>,
    large: Vec<i64>,
    texts: Vec<ByteArray>,
    bools: Vec<bool>,
}

impl Column {
    fn push(&mut self, cell: Cell) -> usize {
        let mut bytes = 0;
        let taken = match (self.kind, cell) {
            (Kind::U32, Cell::Uint(value)) => match u32::try_from(value) {
                Ok(value) => {
                    self.small.push(value as i32);
                    true
                }
                Err(_) => false,
            },
            (Kind::U64, Cell::Uint(value)) => {
                self.large.push(value as i64);
                true
            }
            (Kind::I64 | Kind::Time, Cell::Int(value)) => {
                self.large.push(value);
                true
            }
            (Kind::Text, Cell::Text(value)) => {
                bytes = value.len();
                self.texts.push(value);
                true
            }
            (Kind::Bool, Cell::Bool(value)) => {
                self.bools.push(value);
                true
            }
            _ => false,
        };
        self.present.push(i16::from(taken));
        bytes
    }

    fn write(&mut self, writer: &mut ColumnWriter<'_>) -> Result<(), ParquetError> {
        let present = Some(self.present.as_slice());
        match writer {
            ColumnWriter::Int32ColumnWriter(writer) => writer.write_batch(&self.small, present, None)?,
            ColumnWriter::Int64ColumnWriter(writer) => writer.write_batch(&self.large, present, None)?,
            ColumnWriter::ByteArrayColumnWriter(writer) => writer.write_batch(&self.texts, present, None)?,
            ColumnWriter::BoolColumnWriter(writer) => writer.write_batch(&self.bools, present, None)?,
            _ => return Err(ParquetError::General("a column of a type that no table has".to_owned())),
        };
        self.present.clear();
        self.small.clear();
        self.large.clear();
        self.texts.clear();
        self.bools.clear();
        Ok(())
    }
}

/// A table under construction.
pub(super) struct Table {
    writer: SerializedFileWriter<File>,
    columns: Vec<Column>,
    rows: usize,
    bytes: usize,
}

impl Table {
    /// Creates the file `NAME.parquet` in a directory.
    pub(super) fn create(dir: &Path, name: &str, columns: &[(&str, Kind)]) -> Result<Table, ExportError> {
        let file = create(dir, &format!("{name}.parquet"))?;
        let fields = columns.iter().map(|(name, kind)| kind.schema(name).map(Arc::new)).collect::<Result<_, _>>();
        let schema = fields.and_then(|fields| Type::group_type_builder(name).with_fields(fields).build());
        let schema = Arc::new(schema.map_err(failed)?);
        let writer = SerializedFileWriter::new(file, schema, properties(columns)?).map_err(failed)?;
        let columns = columns
            .iter()
            .map(|&(_, kind)| Column {
                kind,
                present: Vec::new(),
                small: Vec::new(),
                large: Vec::new(),
                texts: Vec::new(),
                bools: Vec::new(),
            })
            .collect();
        Ok(Table { writer, columns, rows: 0, bytes: 0 })
    }

    /// Adds a row: a cell for each column, in their order.
    pub(super) fn row(&mut self, cells: impl IntoIterator<Item = Cell>) -> Result<(), ExportError> {
        let mut cells = cells.into_iter();
        for column in &mut self.columns {
            self.bytes += column.push(cells.next().unwrap_or(Cell::Null));
        }
        self.rows += 1;
        if self.rows >= GROUP || self.bytes >= GROUP_TEXT { self.flush() } else { Ok(()) }
    }

    fn flush(&mut self) -> Result<(), ExportError> {
        if self.rows == 0 {
            return Ok(());
        }
        let mut group = self.writer.next_row_group().map_err(failed)?;
        for column in &mut self.columns {
            if let Some(mut writer) = group.next_column().map_err(failed)? {
                column.write(writer.untyped()).map_err(failed)?;
                writer.close().map_err(failed)?;
            }
        }
        group.close().map_err(failed)?;
        (self.rows, self.bytes) = (0, 0);
        Ok(())
    }

    /// Writes what is left and the file's end.
    pub(super) fn close(mut self) -> Result<(), ExportError> {
        self.flush()?;
        self.writer.close().map_err(failed)?;
        Ok(())
    }
}

fn properties(columns: &[(&str, Kind)]) -> Result<WriterPropertiesPtr, ExportError> {
    let note = KeyValue::new(WRITER.to_owned(), env!("CARGO_PKG_VERSION").to_owned());
    let mut properties = WriterProperties::builder()
        .set_compression(Compression::ZSTD(ZstdLevel::try_new(3).map_err(failed)?))
        .set_created_by(concat!("rankdiff ", env!("CARGO_PKG_VERSION")).to_owned())
        .set_key_value_metadata(Some(vec![note]));
    // Times and counters are all different; what is between one and the next is small.
    for (name, kind) in columns {
        if *kind == Kind::Time || matches!(*name, "seq" | "thread_seq" | "duration_ns") {
            let path = ColumnPath::from(*name);
            properties = properties
                .set_column_dictionary_enabled(path.clone(), false)
                .set_column_encoding(path, Encoding::DELTA_BINARY_PACKED);
        }
    }
    Ok(Arc::new(properties.build()))
}

fn failed(error: ParquetError) -> ExportError {
    match error {
        ParquetError::External(source) => match source.downcast::<std::io::Error>() {
            Ok(source) => ExportError::Io(*source),
            Err(other) => ExportError::Encode(other.to_string()),
        },
        other => ExportError::Encode(other.to_string()),
    }
}
