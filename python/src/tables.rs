//! Tables that other libraries take without a copy, by Arrow's PyCapsule interface.
//!
//! The interface: <https://arrow.apache.org/docs/format/CDataInterface/PyCapsuleInterface.html>.

use arrow_array::ffi_stream::FFI_ArrowArrayStream;
use arrow_array::{
    ArrayRef, BooleanArray, Float64Array, RecordBatch, RecordBatchIterator, StringArray, UInt64Array,
};
use arrow_schema::ffi::FFI_ArrowSchema;
use arrow_schema::{ArrowError, Field, Schema};
use pyo3::exceptions::PyRuntimeError;
use pyo3::prelude::*;
use pyo3::types::{PyCapsule, PyDict};
use std::sync::Arc;
use study::columns::{Column, Columns};

/// A table of figures, as Arrow's consumers take it: `polars.DataFrame(table)`,
/// `pyarrow.table(table)`, `duckdb.sql("select * from table")`.
#[pyclass(frozen, module = "roost")]
pub struct Table {
    columns: Columns,
    batch: RecordBatch,
}

impl Table {
    pub fn new(columns: Columns) -> PyResult<Self> {
        let arrays = columns.iter().map(|(_, column)| array(column));
        let fields = columns.iter().zip(arrays.clone());
        let schema = Schema::new(
            fields
                .map(|((name, _), array)| Field::new(name, array.data_type().clone(), true))
                .collect::<Vec<Field>>(),
        );
        let batch = RecordBatch::try_new(Arc::new(schema), arrays.collect()).map_err(refused)?;
        Ok(Self { columns, batch })
    }
}

fn array(column: &Column) -> ArrayRef {
    match column {
        Column::Text(cells) => Arc::new(StringArray::from(cells.clone())),
        Column::Count(cells) => Arc::new(UInt64Array::from(cells.clone())),
        Column::Number(cells) => Arc::new(Float64Array::from(cells.clone())),
        Column::Truth(cells) => Arc::new(BooleanArray::from(cells.clone())),
    }
}

fn refused(error: ArrowError) -> PyErr {
    PyRuntimeError::new_err(error.to_string())
}

#[pymethods]
impl Table {
    /// The table as a stream of one batch. All columns keep their types, whatever is asked for.
    #[pyo3(signature = (requested_schema=None))]
    fn __arrow_c_stream__<'py>(
        &self,
        py: Python<'py>,
        requested_schema: Option<Bound<'py, PyAny>>,
    ) -> PyResult<Bound<'py, PyCapsule>> {
        let _ = requested_schema;
        let batches = RecordBatchIterator::new([Ok(self.batch.clone())], self.batch.schema());
        PyCapsule::new_with_value(py, FFI_ArrowArrayStream::new(Box::new(batches)), c"arrow_array_stream")
    }

    fn __arrow_c_schema__<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyCapsule>> {
        let schema = FFI_ArrowSchema::try_from(self.batch.schema().as_ref()).map_err(refused)?;
        PyCapsule::new_with_value(py, schema, c"arrow_schema")
    }

    /// Names of the columns, in order.
    #[getter]
    fn column_names(&self) -> Vec<&str> {
        self.columns.iter().map(|(name, _)| name.as_str()).collect()
    }

    /// Types of the columns: `text`, `count`, `number` or `truth`.
    #[getter]
    fn column_types(&self) -> Vec<&'static str> {
        let name = |column: &Column| match column {
            Column::Text(_) => "text",
            Column::Count(_) => "count",
            Column::Number(_) => "number",
            Column::Truth(_) => "truth",
        };
        self.columns.iter().map(|(_, column)| name(column)).collect()
    }

    fn __len__(&self) -> usize {
        self.batch.num_rows()
    }

    /// The columns as lists; a cell that is not known is None.
    fn to_pydict<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyDict>> {
        let dict = PyDict::new(py);
        for (name, column) in &self.columns {
            match column {
                Column::Text(cells) => dict.set_item(name, cells)?,
                Column::Count(cells) => dict.set_item(name, cells)?,
                Column::Number(cells) => dict.set_item(name, cells)?,
                Column::Truth(cells) => dict.set_item(name, cells)?,
            }
        }
        Ok(dict)
    }

    fn __repr__(&self) -> String {
        format!("<roost.Table: {} rows, {} columns>", self.batch.num_rows(), self.columns.len())
    }
}
