//! Registry logins from credential provider programs.
